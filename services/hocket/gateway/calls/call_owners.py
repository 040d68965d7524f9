"""Who owns each call in progress (its run and attempt), and who may stop it."""

from hocket.schemas.messages import Attribution, StepCancelled


class CallOwners:
    """The owners of the calls in progress, by call key."""

    def __init__(self) -> None:
        self._of_run: dict[str, dict[str, Attribution]] = {}
        self._capability_of: dict[str, str] = {}
        """The capability of the attempt that makes each call."""

    def add(self, key: str, who: Attribution, capability: str | None) -> None:
        """Record the owner of a call that begins."""
        if who.run_id is not None:
            self._of_run.setdefault(who.run_id, {})[key] = who
        if capability is not None:
            self._capability_of[key] = capability

    def remove(self, key: str, who: Attribution) -> None:
        """Forget a call that has ended."""
        self._capability_of.pop(key, None)
        if who.run_id is not None:
            calls = self._of_run[who.run_id]
            del calls[key]
            if not calls:
                del self._of_run[who.run_id]

    def may_cancel(self, key: str, capability: str | None) -> bool:
        """Tell whether the holder of this capability may stop a call from outside."""
        return self._capability_of.get(key) in (None, capability)

    def calls_of(self, cancelled: StepCancelled) -> list[str]:
        """Return the calls of the attempts that a cancellation names and may stop."""
        return [
            key
            for key, who in self._of_run.get(cancelled.run_id, {}).items()
            if cancelled.step in (None, who.step)
            and cancelled.attempt in (None, who.attempt)
            and self.may_cancel(key, cancelled.capability)
        ]
