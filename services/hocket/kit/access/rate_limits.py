"""Rate limits with a burst, by name, in this process.

A name's state is one number, the time at which all its requests so far are paid off at its rate. If that
is more than BURST_S in the future, further requests are refused. Names that are paid off are forgotten.
If the clock is set back, these times go back with it: otherwise all names would be refused for as long.
"""

from hocket.schemas.errors import ErrorClass, HocketError

BURST_S = 2.0
"""The burst: this many seconds' worth of requests may come at once."""
MAX_NAMES = 20_000
"""Names in memory; beyond this, those that are paid off earliest are forgotten."""


class TooManyRequests(HocketError):
    """More than {per_s:g} requests a second came from {kind} `{name}`. Send them more slowly: try again
    after `Retry-After`."""

    code = "too_many_requests"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class RateLimits:
    """The request rates of many names; `kind` says in errors what the names are."""

    def __init__(self, kind: str = "key") -> None:
        self._kind = kind
        self._paid_off_s: dict[str, float] = {}
        self._latest_s = float("-inf")

    def take(self, name: str, per_s: float, now_s: float) -> None:
        """Count one request of a name at a rate of `per_s`, or raise TooManyRequests. `now_s` is the
        Unix time."""
        if now_s < self._latest_s:
            back_s = self._latest_s - now_s
            self._paid_off_s = {one: at_s - back_s for one, at_s in self._paid_off_s.items()}
        self._latest_s = now_s
        paid_off_s = self._paid_off_s.get(name)
        if paid_off_s is None:
            if len(self._paid_off_s) >= MAX_NAMES:
                self._forget(now_s)
            paid_off_s = now_s
        elif paid_off_s <= now_s:
            paid_off_s = now_s
        elif paid_off_s - now_s > BURST_S:
            raise TooManyRequests(
                kind=self._kind,
                name=name,
                per_s=per_s,
                retry_at_ms=(paid_off_s - BURST_S) * 1000,
                retry_after_ms=(paid_off_s - BURST_S - now_s) * 1000,
            )
        self._paid_off_s[name] = paid_off_s + 1 / per_s

    def owe(self, name: str, more_s: float) -> None:
        """Charge a name whose request was admitted `more_s` additional seconds of its rate."""
        if name in self._paid_off_s:
            self._paid_off_s[name] += more_s

    def _forget(self, now_s: float) -> None:
        left = sorted(
            (item for item in self._paid_off_s.items() if item[1] > now_s), key=lambda item: item[1]
        )
        self._paid_off_s = dict(left[-MAX_NAMES // 2 :])
