"""Who owns each call in progress (its run and attempt), and who may stop it."""

from hocket.gateway.core.calls.call_key import CallKey
from hocket.schemas.capabilities import hashed
from hocket.schemas.messages import Attribution, StepCancelled


class CallOwners:
    """The owners of the calls in progress, by call key."""

    def __init__(self) -> None:
        self._of_run: dict[str, dict[CallKey, Attribution]] = {}
        self._of_id: dict[tuple[str, str], set[CallKey]] = {}
        """The calls of a tenant that have the same id."""
        self._capability_of: dict[CallKey, str] = {}
        """The capability of the attempt that makes each call."""

    def add(self, key: CallKey, who: Attribution, capability: str | None) -> None:
        """Record the owner of a call that begins."""
        self._of_id.setdefault(key[:2], set()).add(key)
        if who.run_id is not None:
            self._of_run.setdefault(who.run_id, {})[key] = who
        if capability is not None:
            self._capability_of[key] = capability

    def remove(self, key: CallKey, who: Attribution) -> None:
        """Forget a call that has ended."""
        self._capability_of.pop(key, None)
        same = self._of_id[key[:2]]
        same.remove(key)
        if not same:
            del self._of_id[key[:2]]
        if who.run_id is not None:
            calls = self._of_run[who.run_id]
            del calls[key]
            if not calls:
                del self._of_run[who.run_id]

    def calls_with(self, tenant: str, call_id: str, capability: str | None) -> list[CallKey]:
        """Return a tenant's calls with an id that the holder of this capability may stop."""
        same = self._of_id.get((tenant, call_id), set())
        return [key for key in same if self._may_cancel(key, capability)]

    def calls_of(self, cancelled: StepCancelled) -> list[CallKey]:
        """Return the calls of the attempts that a cancellation names and may stop."""
        return [
            key
            for key, who in self._of_run.get(cancelled.run_id, {}).items()
            if cancelled.step in (None, who.step)
            and cancelled.attempt in (None, who.attempt)
            and hashed(self._capability_of.get(key)) in (None, cancelled.capability_sha256)
        ]

    def _may_cancel(self, key: CallKey, capability: str | None) -> bool:
        return self._capability_of.get(key) in (None, capability)
