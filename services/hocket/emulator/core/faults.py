"""Which faults happen, and when: scripted ones first, then random ones.

A script lists the faults of the next requests one by one; when it is empty, each kind of fault
happens at its rate. Randomness is a hash of the seed and the request number, so a run can be
repeated.
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.faults import misuse

MAX_SCRIPT = 100_000
MAX_DELAY_S = 86_400.0
ROUNDING = 1e-9
"""By how much the sum of rates may exceed 1: 0.7, 0.2 and 0.1 are not exact in binary."""

Share = Annotated[float, Field(ge=0, le=1)]
FaultKind = Literal["none", "status", "hang", "disconnect", "delay"]


class Fault(BaseModel):
    """What happens to one request.

    `status` answers with an error of that status; `hang` never answers; `disconnect` breaks the
    connection, in a stream after `after_tokens`; `delay` answers `delay_s` later.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind = "none"
    status: int = Field(500, ge=400, le=599)
    retry_after_s: float | None = Field(None, ge=0, le=MAX_DELAY_S)
    after_tokens: int = Field(0, ge=0)
    delay_s: float = Field(0.0, ge=0, le=MAX_DELAY_S)
    count: int = Field(1, ge=1, le=MAX_SCRIPT)
    """How many requests in a row, in a script."""


class FaultRates(BaseModel):
    """The share of requests that each kind of fault happens to; together at most all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error_rate: Share = 0.0
    rate_limit_rate: Share = 0.0
    hang_rate: Share = 0.0
    disconnect_rate: Share = 0.0
    delay_rate: Share = 0.0
    error_status: int = Field(500, ge=400, le=599)
    retry_after_s: float = Field(1.0, ge=0, le=MAX_DELAY_S)
    delay_s: float = Field(1.0, ge=0, le=MAX_DELAY_S)

    @model_validator(mode="after")
    def _are_at_most_all(self) -> Self:
        rates = (
            self.error_rate,
            self.rate_limit_rate,
            self.hang_rate,
            self.disconnect_rate,
            self.delay_rate,
        )
        if (total := math.fsum(rates)) > 1 + ROUNDING:
            raise misuse(
                f"the rates of faults are {total:g} together, which is more than all requests",
                "Lower them to at most 1 together.",
            )
        return self


NO_FAULT = Fault()


class Faults:
    """Assigns a fault, usually none, to each request in turn."""

    def __init__(self, rates: FaultRates, *, seed: int) -> None:
        self.rates = rates
        self._seed = seed
        self._dealt = 0
        self._script: deque[Fault] = deque()

    @property
    def scripted(self) -> int:
        """The number of requests with a scripted fault."""
        return len(self._script)

    def add(self, faults: Iterable[Fault]) -> None:
        """Append faults to the script; raise InvalidInput if it would be too long."""
        added = [fault for fault in faults for _ in range(fault.count)]
        if len(self._script) + len(added) > MAX_SCRIPT:
            raise InvalidInput(
                field="script",
                reason=f"it would have more than {MAX_SCRIPT} requests",
                cure="Send it in parts.",
            )
        self._script.extend(added)

    def clear(self) -> None:
        """Clear the script."""
        self._script.clear()

    def deal(self) -> Fault:
        """Return the fault of the next request."""
        self._dealt += 1
        if self._script:
            return self._script.popleft()
        rates = self.rates
        kinds = (
            (rates.error_rate, Fault(kind="status", status=rates.error_status)),
            (
                rates.rate_limit_rate,
                Fault(kind="status", status=429, retry_after_s=rates.retry_after_s),
            ),
            (rates.hang_rate, Fault(kind="hang")),
            (rates.disconnect_rate, Fault(kind="disconnect")),
            (rates.delay_rate, Fault(kind="delay", delay_s=rates.delay_s)),
        )
        if not any(rate for rate, _ in kinds):
            return NO_FAULT
        die = self._die()
        for rate, fault in kinds:
            if die < rate:
                return fault
            die -= rate
        return NO_FAULT

    def _die(self) -> float:
        """Return this request's pseudo-random number in [0, 1)."""
        digest = hashlib.blake2b(f"{self._seed}:{self._dealt}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64
