"""Questions that go together: about one case in one request, or with one beginning."""

from dagengine.gateway.packs.packing import Packing, Participant
from dagengine.gateway.packs.sender import PackingJudge

__all__ = ["Packing", "PackingJudge", "Participant"]
