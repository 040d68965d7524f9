"""Records why an attempt went to its replica, in bounded size however many replicas the model has.

The best MAX_CANDIDATES of the replicas considered are kept, those that could take the call first;
the others are only counted. `hocket gateway explain` shows the record.
"""

from math import isfinite

from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.protocols.openai_api import CHAT, COMPLETIONS, EMBEDDINGS, path_of
from hocket.gateway.core.routing.replica_choice import Decision, ReplicaCandidate
from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.messages import CallRequest
from hocket.schemas.structs.usage import RecordedDecision, SeenCandidate

MAX_CANDIDATES = 16
MAX_TRIED = 16
MAX_REASON_CHARS = 400
MAX_REFUSED_CHARS = 120
MAX_TARGET_CHARS = 200
_ENDLESS = 1e300
_OPERATIONS = {CHAT: "chat", COMPLETIONS: "text_completion", EMBEDDINGS: "embeddings"}


def recorded(
    request: CallRequest,
    spec: BackendSpec,
    decision: Decision,
    *,
    queue_ms: float,
    tried: tuple[str, ...] = (),
    because: str = "",
) -> RecordedDecision:
    """Return the decision to ask a replica, in the form its usage record holds."""
    candidates = decision.candidates
    if len(candidates) > 1:
        candidates = tuple(sorted(candidates, key=_rank))
    return RecordedDecision(
        model=decision.model,
        reason=_text(decision.reason[:MAX_REASON_CHARS]),
        because=_text(because),
        queue_ms=round(queue_ms, 3),
        tried=tried[-MAX_TRIED:],
        candidates=tuple(_seen(one) for one in candidates[:MAX_CANDIDATES]),
        left_out=max(len(candidates) - MAX_CANDIDATES, 0),
        operation=_OPERATIONS.get(path_of(request), "chat"),
        provider=spec.kind,
        target=_text(spec.target[:MAX_TARGET_CHARS]),
    )


def _rank(candidate: ReplicaCandidate) -> tuple[bool, tuple[float, ...]]:
    return bool(candidate.refused), candidate.score


def _seen(candidate: ReplicaCandidate) -> SeenCandidate:
    return SeenCandidate(
        backend=candidate.backend,
        score=tuple(round(one, 6) if isfinite(one) else _ENDLESS for one in candidate.score),
        refused=candidate.refused[:MAX_REFUSED_CHARS],
    )


def _text(text: str) -> str:
    return str(stored_text(text))
