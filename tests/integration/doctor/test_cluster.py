"""`hocket doctor` of three real NATS servers with accounts: while all is well, and of each fault."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from nats.aio.client import Client

from hocket.cli.doctor.findings import Finding, Verdict
from hocket.cli.doctor.nats.connection import connect
from hocket.cli.doctor.nats.coordinators import Coordinators, findings_of, read_coordinators
from hocket.cli.doctor.nats.leaders import spread as spread_leaders
from hocket.cli.doctor.nats.messaging import Messaging, look_at_nats
from hocket.coordinator.core.scheduling.lease_records import MEMBER, encoded, expected, lease_key
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects
from hocket.schemas.access.nats_table import ACCESS_USER, OWNER
from integration.servers.test_elections import Cluster, answered
from integration.servers.test_nats_cluster import Servers, config, free_ports

BOUND_S = 60.0
ON_THE_WAY = (subjects.TASKS, subjects.LOG, subjects.STEPS)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """Three servers with all streams on each, and the right to ask them in their own account."""
    cluster = Cluster(tmp_path)
    for number in range(3):
        await cluster.servers.start(number)
    async with cluster.bus(OWNER) as bus:
        await answered(bus, "INFO")
        await ensure_streams(bus, replicas=3)
        await spread(bus)
    monkeypatch.setenv("HOCKET_NATS_ACCESS_URL", url_of(tmp_path, ACCESS_USER))
    yield cluster
    await cluster.servers.stop()


def url_of(folder: Path, user: str) -> str:
    return (folder / "users" / f"{user}.url").read_text("ascii").strip()


async def led_by(bus: Bus, stream: str) -> str:
    info = await answered(bus, f"STREAM.INFO.{stream}")
    return str(info["cluster"].get("leader") or "")


async def lead(bus: Bus, stream: str, server: str) -> None:
    """Have a server lead a stream."""
    async with asyncio.timeout(BOUND_S):
        while await led_by(bus, stream) != server:
            with contextlib.suppress(Exception):
                preferred = {"placement": {"preferred": server}}
                await bus.api(f"STREAM.LEADER.STEPDOWN.{stream}", preferred, timeout_ms=2_000)
            await asyncio.sleep(0.2)


async def spread(bus: Bus) -> None:
    """Have two servers lead the streams that runs pass."""
    await lead(bus, subjects.LOG, "n0")
    await lead(bus, subjects.STEPS, "n1")


async def looked(url: str) -> list[Finding]:
    found = Messaging()
    await look_at_nats(url, found, is_own=False)
    return found.findings


async def until(url: str, name: str, verdict: Verdict, part: str) -> Finding:
    """Look until a finding says something: servers take some time to see what happened."""
    findings: Sequence[Finding] = ()
    try:
        async with asyncio.timeout(BOUND_S):
            while True:
                findings = await looked(url)
                for one in findings:
                    if one.name == name and one.verdict is verdict and part in one.found:
                        return one
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"{name} {verdict} `{part}` was not found in {findings}") from None


def of(findings: Sequence[Finding], name: str) -> Finding:
    (found,) = (one for one in findings if one.name == name)
    return found


async def test_of_a_cluster_that_is_well_it_says_who_leads_and_that_all_copies_are_current(
    cluster: Cluster, tmp_path: Path
) -> None:
    url = url_of(tmp_path, OWNER)
    await until(url, "replicas", Verdict.OK, "all replicas are current")
    found = Messaging()
    await look_at_nats(url, found, is_own=False)
    for number, address in enumerate(cluster.servers.urls):
        one = of(found.findings, f"nats {address.removeprefix('nats://')}")
        assert (one.verdict, one.found.endswith(f"n{number} of the cluster c")) == (
            Verdict.OK,
            True,
        )
    meta = of(found.findings, "meta leader")
    assert meta.verdict is Verdict.OK
    assert meta.found.endswith(", 3 servers")
    assert of(found.findings, "leaders").verdict is Verdict.OK
    assert of(found.findings, "nats storage").verdict is Verdict.OK
    assert {one.of for one in found.readings} == {"nats n0", "nats n1", "nats n2"}
    assert all(abs(one.ahead_s) < 1 for one in found.readings)  # one machine has one clock


async def test_it_names_a_server_that_is_away_the_copies_it_has_and_what_may_still_be_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    url = url_of(tmp_path, OWNER)
    await cluster.servers.kill(2)
    address = cluster.servers.urls[2].removeprefix("nats://")
    away = await until(url, f"nats {address}", Verdict.FAILED, "")
    assert "Start the server" in away.cure
    copies = await until(url, "replicas", Verdict.FAILED, "n2 is down, with replicas of")
    assert "one more loss stops these streams" in copies.cure
    meta = await until(url, "meta leader", Verdict.FAILED, "n2 down")
    assert "with one more loss, the cluster stops" in meta.cure


async def test_without_a_quorum_it_says_that_nothing_leads_and_gives_no_traceback(
    cluster: Cluster, tmp_path: Path
) -> None:
    url = url_of(tmp_path, OWNER)
    await cluster.servers.kill(1)
    await cluster.servers.kill(2)
    found = await until(url, "jetstream", Verdict.FAILED, "")
    assert found.cure


async def test_it_says_which_streams_are_on_one_server(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.bus(OWNER) as bus:
        lonely = {"name": "KV_lonely", "subjects": ["lonely.>"], "num_replicas": 1}
        await answered(bus, "STREAM.CREATE.KV_lonely", lonely)
    found = await until(url_of(tmp_path, OWNER), "replicas", Verdict.FAILED, "KV_lonely")
    assert "on one of 3 servers" in found.found
    assert "--replicas 3" in found.cure


async def test_it_says_that_one_server_has_the_work_of_all_runs(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with cluster.bus(OWNER) as bus:
        for stream in ON_THE_WAY:
            await lead(bus, stream, "n1")
    url = url_of(tmp_path, OWNER)
    found = await until(url, "leaders", Verdict.NOTE, "n1 leads TASKS, LOG, STEPS")
    assert "hocket nats spread" in found.cure
    connection = await connect(url)
    try:
        moved = [move async for move in spread_leaders(connection)]
        assert {move.stream for move in moved if move.stream in ON_THE_WAY} < set(ON_THE_WAY)
        async with cluster.bus(OWNER) as bus:
            assert {await led_by(bus, stream) for stream in ON_THE_WAY} == {"n0", "n1", "n2"}
        assert [move async for move in spread_leaders(connection)] == []
    finally:
        await connection.close()
    await until(url, "leaders", Verdict.OK, "")


async def test_without_the_user_access_it_says_what_is_not_known(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOCKET_NATS_ACCESS_URL")
    meta = of(await looked(url_of(tmp_path, OWNER)), "meta leader")
    assert (meta.verdict, "HOCKET_NATS_ACCESS_URL_FILE" in meta.cure) == (Verdict.NOTE, True)


async def test_it_says_that_an_address_leaves_servers_out(cluster: Cluster, tmp_path: Path) -> None:
    one, two, _ = url_of(tmp_path, OWNER).split(",")
    told = [each.found for each in await looked(one) if each.name == "nats cluster"]
    assert told == [
        "only one server of the cluster c is named",
        "n1, n2 is in the cluster but not named in NATS_URL",
    ]
    both = of(await looked(f"{one},{two}"), "nats cluster")
    assert (both.verdict, both.found) == (
        Verdict.NOTE,
        "n2 is in the cluster but not named in NATS_URL",
    )


async def test_it_says_that_servers_are_of_different_clusters(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    ports, routes = free_ports(3), free_ports(3)
    (tmp_path / "n2.conf").write_text(
        config(tmp_path, 2, ports, routes).replace("name: c,", "name: other,")
    )
    try:
        await servers.start(0)
        await servers.start(2)
        url = f"{servers.urls[0]},nats://127.0.0.1:{ports[2]}"
        found = await until(url, "nats cluster", Verdict.FAILED, "c and the cluster other")
        assert "routes" in found.cure
    finally:
        await servers.stop()


@contextlib.asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Client]:
    connection = await connect(url_of(folder, OWNER))
    try:
        yield connection
    finally:
        await connection.close()


async def test_it_names_partitions_whose_owner_does_not_live(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with cluster.bus(OWNER) as bus, connected(tmp_path) as connection:
        missing = await read_coordinators(connection)
        assert isinstance(missing, Finding)
        assert missing.verdict is Verdict.FAILED
        bucket = Bucket(
            bus,
            subjects.COORDINATORS,
            replicas=3,
            expected=lambda key, value: expected(key, value, partitions=8),
        )
        async with bucket.watching():
            async with asyncio.timeout(BOUND_S):
                while bucket.current_since_s == float("-inf"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await bucket.put(f"{MEMBER}one", encoded(incarnation="1", state="serving"))
            await bucket.put(lease_key(0), encoded(owner="one", incarnation="1"))
            await bucket.put(lease_key(1), encoded(owner="one", incarnation="0"))  # a former life
            await bucket.put(lease_key(2), encoded(owner="gone", incarnation="7"))
            await bucket.put(lease_key(3), encoded(owner="", incarnation=""))
            await bucket.put(lease_key(4), None)
            living = await read_coordinators(connection)
        assert isinstance(living, Coordinators)
        coordinator, partitions = findings_of(living, 5)
        assert (coordinator.verdict, coordinator.found) == (Verdict.OK, "one (1 partitions)")
        assert (partitions.verdict, partitions.found) == (
            Verdict.FAILED,
            "4 of 5 have no live owner: 1 (last one), 2 (last gone), 3, 4",
        )
