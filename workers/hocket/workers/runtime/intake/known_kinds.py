"""Which kinds of steps kill their workers, as far as this worker knows: from its predecessors, from its
own steps, and from what other workers noted in the stream PROBATION."""

from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.intake.suspicion import Suspicion
from hocket.workers.runtime.transport.held_steps import HeldSteps
from hocket.workers.runtime.transport.probation_records import ProbationRecords, kind_of


class KnownKinds:
    """What is held against kinds of steps."""

    def __init__(self, records: ProbationRecords, held: HeldSteps) -> None:
        self.suspicion = Suspicion(held.note_kind)
        self._records = records
        self._noted: set[str] = set()
        """Kinds that are noted in the stream as being on probation, for workers that start."""

    async def read(self) -> None:
        """Read what other workers noted."""
        self._noted = await self._records.killers()
        self.suspicion.add(self._noted)

    async def tell(self) -> None:
        """Note for other workers which kinds are on probation now, and which no longer are."""
        tried, noted = set(self.suspicion.tried), self._noted
        self._noted = tried
        for kind in tried - noted:
            await self._records.note_kind(kind, ends_worker=True)
        for kind in noted - tried:
            await self._records.note_kind(kind, ends_worker=False)

    def has(self, step: RequestedStep) -> bool:
        """Tell whether steps of this step's kind are on probation from their first delivery."""
        tried = self.suspicion.tried
        return bool(tried) and kind_of(step) in tried

    def doublings(self, step: RequestedStep) -> int:
        """Return how often the wait before a step of this kind is tried has doubled."""
        return self.suspicion.doublings(kind_of(step))

    def ended(self, attempt: Attempt) -> None:
        """Note that a step ended without killing its worker."""
        if self.suspicion and attempt.stopped is None:
            self.suspicion.ended_well(kind_of(attempt.step), alone=False)

    async def ended_on_probation(self, attempt: Attempt) -> None:
        """Note that a step on probation ended without killing its worker."""
        if attempt.stopped is None:
            self.suspicion.ended_well(kind_of(attempt.step), alone=True)
            await self.tell()

    async def ended_worker(self, step: RequestedStep) -> None:
        """Note that a step is given up because it kills its workers."""
        self.suspicion.add([kind_of(step)])
        await self.tell()
