"""Gets embedding vectors from the platform's gateway for `hocket index`; each batch is one booked
call."""

import time
from collections.abc import Sequence
from uuid import uuid4

from hocket.cli.terminal.errors import EmbeddingFailed
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, CallReply, CallRequest

CALL_TIMEOUT_MS = 120_000


class GatewayEmbedder:
    """An embedder (see hocket.workers.retrieval.embedding) that asks the gateway for `model`."""

    def __init__(self, bus: Bus, model: str, tenant: str) -> None:
        self.model = model
        self._bus = bus
        self._tenant = tenant

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text; raises EmbeddingFailed with the gateway's error."""
        request = CallRequest(
            call_id=f"index:{uuid4().hex}",
            model=self.model,
            embed=tuple(texts),
            deadline_at_ms=time.time() * 1000 + CALL_TIMEOUT_MS,
            attribution=Attribution(tenant=self._tenant),
        )
        answer = await self._bus.request(
            subjects.GATEWAY_CALL, request.model_dump_json().encode(), timeout_ms=CALL_TIMEOUT_MS
        )
        reply = CallReply.model_validate_json(answer.data)
        if reply.error is not None:
            raise EmbeddingFailed(model=self.model, reason=reply.error.message)
        return [list(vector) for vector in reply.embeddings]
