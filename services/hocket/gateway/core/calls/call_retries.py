"""How often a call is tried, and the pause between tries; the only retry policy in the gateway."""

from hocket.gateway.core.config.table import ModelSpec
from hocket.schemas import ids

MAX_ATTEMPTS = 4
"""The most attempts of one call by default."""
FIRST_PAUSE_MS = 100.0
MAX_PAUSE_MS = 5_000.0


def attempts_of(model: ModelSpec) -> int:
    """Return how many attempts a call of a model gets, the first included."""
    return MAX_ATTEMPTS if model.retries is None else 1 + model.retries


def pause_ms(call_id: str, attempts: int) -> float:
    """Return how long to wait before the same replicas are asked again: doubled per attempt, with
    jitter derived from the call id."""
    longest_ms = min(FIRST_PAUSE_MS * 2.0 ** (attempts - 1), MAX_PAUSE_MS)
    return longest_ms * (0.5 + 0.5 * ids.fraction("pause", call_id, str(attempts)))
