"""What one commit writes, grouped by run, and split into statements by size."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hocket.coordinator.core.run.ends.notification_watermark import NotificationWatermark
from hocket.coordinator.core.run.state.columns import RUN_COLUMNS, STEP_COLUMNS, Row
from hocket.coordinator.storage.step_tables import Placement

MAX_STATEMENT_CHARS = 16 * 1024 * 1024
"""More than this is written by several statements of one transaction; Postgres accepts 1 GB in one."""

ROW_CHARS = 1_000
"""The size assumed for the other columns of a row."""
_RUN_INPUT, _RUN_OUTPUT = (list(RUN_COLUMNS).index(name) for name in ("input", "output"))
_STEP_INPUT, _STEP_OUTPUT = (list(STEP_COLUMNS).index(name) for name in ("input", "output"))

Key = str | tuple[int, str, str]
"""A run, or a partition's forecast of a pipeline (partition, tenant, pipeline)."""


@dataclass(slots=True)
class Batch:
    """What one commit writes. `offsets`: partition -> (epoch, applied_seq, applied_msg_id);
    `numbers`: partition -> the number of this batch within its epoch; `told`: partition -> up to
    when the ends of its runs were announced, if that has changed."""

    offsets: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    told: dict[int, NotificationWatermark] = field(default_factory=dict)
    runs: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    outlooks: list[Row] = field(default_factory=list)
    """(partition, tenant, pipeline, path, weight, mean_ms, variance), each key once."""
    closed: list[str] = field(default_factory=list)
    """Runs whose steps are all to be closed, whatever was written of them before."""
    flow: list[Row] = field(default_factory=list)
    """The places where runs that begin with this batch wait to start: FLOW_COLUMNS."""
    left: list[str] = field(default_factory=list)
    """Runs with such places that end with this batch."""
    spending: list[Row] = field(default_factory=list)
    """What more was spent of runs that have ended: SPENDING_COLUMNS."""
    size_chars: int = 0
    """The approximate length of its rows."""
    placements: dict[str, Placement] = field(default_factory=dict)
    """By run, what determines the tables of its steps and attempts."""

    def bare(self) -> "Batch":
        """Return what it writes besides rows: offsets, and what goes with them."""
        return Batch(self.offsets, self.numbers, self.told, placements=self.placements)

    def add(self, other: "Batch") -> None:
        """Add the rows of another batch."""
        self.runs += other.runs
        self.steps += other.steps
        self.attempts += other.attempts
        self.outlooks += other.outlooks
        self.closed += other.closed
        self.flow += other.flow
        self.left += other.left
        self.spending += other.spending
        self.size_chars += other.size_chars


def groups_of(batch: Batch) -> dict[Key, Batch]:
    """Group the rows of a batch by what they are about, keeping their order."""
    groups: dict[Key, Batch] = {}

    def of(key: Key) -> Batch:
        return groups.setdefault(key, batch.bare())

    for row in batch.runs:
        of(row[0]).runs.append(row)
    for row in batch.steps:
        of(row[0]).steps.append(row)
    for row in batch.attempts:
        of(row[0]).attempts.append(row)
    for row in batch.outlooks:
        of((row[0], row[1], row[2])).outlooks.append(row)
    for run_id in batch.closed:
        of(run_id).closed.append(run_id)
    for row in batch.flow:
        of(row[0]).flow.append(row)
    for run_id in batch.left:
        of(run_id).left.append(run_id)
    for row in batch.spending:
        of(row[0]).spending.append(row)
    for group in groups.values():
        group.size_chars = sum(map(row_chars, _rows(group)))
    return groups


def joined(batch: Batch, groups: Iterable[Batch]) -> Batch:
    """Return a batch with the same offsets and the rows of these groups."""
    part = batch.bare()
    for group in groups:
        part.add(group)
    return part


def parts_of(batch: Batch, max_chars: int = MAX_STATEMENT_CHARS) -> Iterator[Batch]:
    """Yield parts of a batch that are written one after the other in one transaction: runs before
    their steps, each part within the limit or of a single row."""
    if batch.size_chars <= max_chars:
        yield batch
        return
    part = batch.bare()
    part.outlooks = batch.outlooks
    for kind in ("runs", "steps", "attempts"):
        for row in getattr(batch, kind):
            chars = row_chars(row)
            if part.size_chars and part.size_chars + chars > max_chars:
                yield part
                part = batch.bare()
            getattr(part, kind).append(row)
            part.size_chars += chars
    part.closed = batch.closed
    part.flow = batch.flow
    part.left = batch.left
    part.spending = batch.spending
    yield part


def batch_chars(batch: Batch) -> int:
    """Return the approximate length of a batch's rows, based on their inputs and outputs."""
    rows = (batch.runs, batch.steps, batch.attempts, batch.spending)
    chars = ROW_CHARS * sum(map(len, rows))
    for row in batch.runs:
        chars += len(row[_RUN_INPUT]) + len(row[_RUN_OUTPUT] or "")
    for row in batch.steps:
        text, result = row[_STEP_INPUT], row[_STEP_OUTPUT]
        chars += (len(text) if text else 0) + (len(result) if result else 0)
    return chars


def row_chars(row: Row) -> int:
    """Return the total length of a row's texts."""
    return sum(len(value) for value in row if isinstance(value, str))


def _rows(batch: Batch) -> Iterator[Row]:
    yield from batch.runs
    yield from batch.steps
    yield from batch.attempts
    yield from batch.spending
