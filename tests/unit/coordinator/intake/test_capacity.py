"""Which tenant makes the coordinators full, and whose tasks are taken in then."""

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.coordinator.core.scheduling.lease_records import encoded, expected, named, sign_of
from hocket.coordinator.intake.capacity import MAX_RUN_BYTES, CapacityLimit
from hocket.coordinator.intake.waiting_tenants import WaitingTenants
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.kv.bucket import MAX_VALUE_BYTES
from hocket.kit.process.limits.disk_space import DiskSpace

MAX_RUNS = 100
MIB = 1024 * 1024


class Coordinator:
    """What one has in memory, by tenant: runs and bytes."""

    def __init__(self, folder: Path, **held: tuple[int, int]) -> None:
        self.held = held
        disk = DiskSpace(folder, min_free_bytes=0)
        self.fullness = CapacityLimit(MAX_RUNS, self._sums, lambda: self.held, disk)

    def _sums(self) -> tuple[int, int]:
        runs = sum(runs for runs, _ in self.held.values())
        return runs, sum(size for _, size in self.held.values())


@pytest.mark.parametrize(
    ("held", "tenants"),
    [
        pytest.param({"a": (99, 0)}, "", id="room"),
        pytest.param({"a": (100, 0)}, "a", id="alone"),
        pytest.param({"a": (51, 0), "b": (49, 0)}, "a", id="more than half of the runs"),
        pytest.param({"a": (50, 0), "b": (49, 0), "c": (1, 0)}, "ab", id="two together"),
        pytest.param({"a": (40, 0), "b": (35, 0), "c": (25, 0)}, "ab", id="as few as it takes"),
        pytest.param({"a": (5, MAX_RUN_BYTES), "b": (49, MIB)}, "a", id="bytes"),
        pytest.param({"a": (5, 4 * MAX_RUN_BYTES), "b": (9, MIB)}, "a", id="grown far beyond"),
        pytest.param({"a": (9, MAX_RUN_BYTES), "b": (91, MIB)}, "ab", id="each by another bound"),
        pytest.param({"a": (130, 0), "b": (49, 0)}, "a", id="others are below their share"),
        pytest.param({"a": (130, 0), "b": (30, 0), "c": (20, 0)}, "ab", id="others have theirs"),
        pytest.param(dict.fromkeys("abcdefghi", (12, 0)), "efghi", id="nine"),
        pytest.param({f"t{n}": (1, 0) for n in range(MAX_RUNS)}, "", id="everybody"),
        pytest.param(dict.fromkeys("abcdefghij", (10, 0)), "efghij", id="ten"),
        pytest.param(dict.fromkeys("abcdefghijklmnopqrst", (5, 0)), "jklmnopqrst", id="twenty"),
        pytest.param({"a": (45, 0), **{f"t{n}": (1, 0) for n in range(55)}}, "", id="the small"),
    ],
)
def test_those_tenants_are_named_that_make_a_coordinator_full(
    held: dict[str, tuple[int, int]], tenants: str, tmp_path: Path
) -> None:
    coordinator = Coordinator(tmp_path, **held)
    assert coordinator.fullness.look() == set(tenants)
    assert coordinator.fullness.over_share() == set(tenants)


def test_it_is_named_no_more_once_there_is_room(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, a=(100, 0))
    assert coordinator.fullness.look() == {"a"}
    coordinator.held = {"a": (95, 0)}
    assert coordinator.fullness.look() == {"a"}, "full until 90 %"
    coordinator.held = {"a": (89, 0)}
    assert (coordinator.fullness.over_share(), coordinator.fullness.look()) == (set(), set())


def test_one_coordinator_that_is_full_for_another_reason_keeps_everybody_out(
    tmp_path: Path,
) -> None:
    fullness = Coordinator(tmp_path, a=(100, 0)).fullness
    fullness.look()
    fullness.heard((frozenset("b"), frozenset("bc")))
    assert fullness.over_share() == {"a", "b", "c"}
    fullness.heard((frozenset("b"), frozenset()))
    assert fullness.anywhere()
    assert fullness.over_share() == set()


def test_a_log_that_is_nearly_full_stops_intake_for_all(tmp_path: Path) -> None:
    disk = DiskSpace(tmp_path, min_free_bytes=0)
    held = {"a": (100, 0)}
    reason = "the stream LOG is full"
    fullness = CapacityLimit(MAX_RUNS, lambda: (100, 0), lambda: held, disk, lambda: reason)
    assert fullness.look() == set()
    assert fullness.anywhere()
    assert fullness.reason == reason
    reason = ""
    assert fullness.look() == {"a"}
    held.clear()
    fullness = CapacityLimit(MAX_RUNS, lambda: (0, 0), lambda: held, disk, lambda: reason)
    assert not fullness.here()


def test_a_disk_that_is_nearly_full_is_no_tenants(tmp_path: Path) -> None:
    disk = DiskSpace(tmp_path, min_free_bytes=2**62)
    fullness = CapacityLimit(MAX_RUNS, lambda: (100, 0), lambda: {"a": (100, 0)}, disk)
    assert fullness.look() == set()
    assert fullness.over_share() == set()


@pytest.mark.parametrize(
    ("content", "tenants"),
    [
        ({"state": "full", "tenant": "acme"}, {"acme"}),
        ({"state": "full", "tenant": "acme,b"}, {"acme", "b"}),
        ({"state": "full"}, set()),
        ({"state": "serving", "tenant": "acme"}, set()),
        *[
            ({"state": "full", "tenant": junk}, set())
            for junk in ("", "a.b", "*", 7, None, ["acme"], "x" * 64, "acme\n", "acme,", "a, b")
        ],
    ],
)
def test_a_sign_of_life_names_a_tenant_only_where_it_may(
    content: dict[str, Any], tenants: set[str]
) -> None:
    value = json.dumps({"incarnation": "now", **content}).encode()
    sign = sign_of(value)
    assert sign is not None
    assert sign.tenants == tenants
    assert expected("member.one", value, partitions=1)


def test_what_is_written_is_read() -> None:
    tenants = frozenset({"acme", "b"})
    sign = sign_of(encoded(incarnation="now", state="full", **named(tenants)))
    assert sign is not None
    assert (sign.state, sign.tenants) == ("full", tenants)


class Tasks:
    """TASKS as the JetStream API tells of it."""

    def __init__(self, *subjects: str, total: int = 0) -> None:
        self.answer: dict[str, Any] = {
            "total": total or len(subjects),
            "state": {"subjects": dict.fromkeys(subjects, 1)},
        }
        self.asked = 0

    async def api(self, subject: str, request: Any, *, timeout_ms: float) -> Any:
        self.asked += 1
        if not self.answer:
            raise BusUnavailable(reason="away")
        return self.answer


@pytest.mark.parametrize(
    ("tasks", "pauses"),
    [
        (Tasks(), True),
        (Tasks("hocket.task.a.one", "hocket.task.a.two"), True),
        (Tasks("hocket.task.a.one", "hocket.task.b.one"), False),
        (Tasks("hocket.task.a.one", total=100_001), False),
    ],
)
async def test_intake_goes_on_while_a_tenant_is_over_its_share_and_others_wait(
    tasks: Tasks, pauses: bool, tmp_path: Path
) -> None:
    coordinator = Coordinator(tmp_path, a=(100, 0))
    waiting = await looked(tasks, coordinator)
    assert waiting.pauses() is pauses
    refused = waiting.refusal("a")
    assert (refused is None) is pauses
    assert waiting.refusal("b") is None
    if refused is not None:
        info = refused.info()
        assert (info.code, info.retryable) == ("tenant_over_share", True)
        assert "1 % of one coordinator's 100 runs or 256 MiB" in info.message
    coordinator.held = {"a": (10, 0)}
    assert not waiting.pauses()
    assert waiting.refusal("a") is None


async def test_it_pauses_where_the_tasks_cannot_be_looked_at(tmp_path: Path) -> None:
    tasks = Tasks()
    tasks.answer = {}
    waiting = await looked(tasks, Coordinator(tmp_path, a=(100, 0)))
    assert waiting.pauses()


async def test_tasks_are_not_looked_at_while_there_is_room(tmp_path: Path) -> None:
    tasks = Tasks("hocket.task.b.one")
    waiting = await looked(tasks, Coordinator(tmp_path, a=(99, 0)))
    assert not waiting.pauses()
    assert tasks.asked == 0


async def looked(tasks: Any, coordinator: Coordinator) -> WaitingTenants:
    """Return it after it has looked once."""
    coordinator.fullness.look()
    waiting = WaitingTenants(tasks, coordinator.fullness)
    await waiting.look()
    return waiting


async def test_many_tenants_that_fill_a_coordinator_keep_no_other_out(tmp_path: Path) -> None:
    """Sixty of them: their names would not fit into a sign of life, their marks do."""
    flood = {f"a-tenant-of-a-flood-with-a-long-name-{n}": (2, 0) for n in range(60)}
    full = Coordinator(tmp_path, **flood)
    sign = encoded(incarnation="now", state="full", **named(full.fullness.look()))
    assert len(sign) < MAX_VALUE_BYTES // 2
    told = sign_of(sign)
    assert told is not None
    here = Coordinator(tmp_path)  # one that has room
    here.fullness.heard((told.tenants,))
    waiting = await looked(Tasks("hocket.task.quiet.p"), here)
    assert not waiting.pauses()
    refused = {tenant for tenant in flood if waiting.refusal(tenant) is not None}
    assert refused == full.fullness.look()
    assert len(refused) > len(flood) / 2
    assert waiting.refusal("quiet") is None
