"""Questions that go together: about one case in one request, or with one beginning."""

from dagengine.gateway.packs.carrier import PackingJudge
from dagengine.gateway.packs.packing import Hold, Packing

__all__ = ["Hold", "Packing", "PackingJudge"]
