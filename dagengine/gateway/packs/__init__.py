"""Questions that go together: about one case in one request, or with one beginning."""

from dagengine.gateway.packs.packing import Packing, PackingJudge, Participant

__all__ = ["Packing", "PackingJudge", "Participant"]
