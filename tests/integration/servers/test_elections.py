"""Elections that are brought forward, on three real servers with accounts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hocket.admin.nats_access.elections import GROUPS, Elections
from hocket.admin.nats_access.server_answers import answers_of_all
from hocket.kit.access.account_files import ACCOUNTS, kept_accounts
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas.access.nats_table import ACCESS_USER, OWNER, PLATFORM_ACCOUNT
from integration.servers.test_nats_cluster import Servers

BOUND_S = 60.0
STREAM = {"name": "ONE", "subjects": ["one"], "num_replicas": 3}


class Cluster:
    """Three servers, and the address of each user."""

    def __init__(self, folder: Path) -> None:
        self._users = folder / "users"
        self.servers = Servers(folder, f"include users/{ACCOUNTS}\n")
        kept_accounts(self._users, ",".join(self.servers.urls))

    @asynccontextmanager
    async def bus(self, user: str, *, without: int | None = None) -> AsyncIterator[Bus]:
        """Connect as a user, to all servers but one."""
        urls = (self._users / f"{user}.url").read_text("ascii").strip().split(",")
        named = ",".join(url for number, url in enumerate(urls) if number != without)
        bus = await Bus.connect(named, name="test")
        try:
            yield bus
        finally:
            await bus.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    for number in range(3):
        await cluster.servers.start(number)
    yield cluster
    await cluster.servers.stop()


async def answered(bus: Bus, what: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask JetStream until it answers without an error."""
    async with asyncio.timeout(BOUND_S):
        while True:
            with contextlib.suppress(BusUnavailable):
                if "error" not in (answer := await bus.api(what, given or {}, timeout_ms=1_000)):
                    return answer
            await asyncio.sleep(0.1)


async def groups(access: Bus) -> dict[str, list[dict[str, Any]]]:
    """Return what the members of each of the platform's groups say."""
    asked = {"account": PLATFORM_ACCOUNT}
    found: dict[str, list[dict[str, Any]]] = {}
    for answer in await answers_of_all(access, GROUPS, asked, first_s=5, quiet_s=1):
        for name, group in (answer["data"] or {}).get(PLATFORM_ACCOUNT, {}).items():
            found.setdefault(name, []).append(group)
    return found


async def led_in(access: Bus) -> dict[str, int]:
    """Return the term in which each group is led; groups without a leader are left out."""
    return {
        name: group["term"]
        for name, members in (await groups(access)).items()
        for group in members
        if group["state"] == "LEADER"
    }


@pytest.mark.parametrize("comes_back", [False, True], ids=["away", "started again"])
async def test_a_group_whose_leader_was_killed_elects_because_it_was_asked_to(
    cluster: Cluster, *, comes_back: bool
) -> None:
    async with cluster.bus(OWNER) as bus:
        await answered(bus, "STREAM.CREATE.ONE", STREAM)
        number = int((await answered(bus, "STREAM.INFO.ONE"))["cluster"]["leader"][1:])
        assert (await bus.publish("one", b"so that no log is empty")).stream == "ONE"
    async with (
        cluster.bus(OWNER, without=number) as bus,
        cluster.bus(ACCESS_USER, without=number) as access,
    ):
        before = await led_in(access)
        assert before
        with capture_logs() as logs:
            elections = Elections(access)
            async with elections.watched():
                await until_all_are_known(elections)
                await cluster.servers.kill(number)
                if comes_back:
                    await cluster.servers.start(number)
                after = await led_again(access, before)
        assert [one for one in logs if one["event"] == "elections_brought_forward"]
        # one for the candidate whom nobody knows, one for who was elected: by themselves it is one
        assert {
            name: after[name] - term for name, term in before.items() if after[name] < term + 2
        } == {}
        await answered(bus, "STREAM.INFO.ONE")
        assert (await bus.publish("one", b"and again")).seq == 2


async def led_again(access: Bus, before: dict[str, int]) -> dict[str, int]:
    """Wait until all groups are led in a later term; return in which."""
    async with asyncio.timeout(BOUND_S):
        while True:
            found = await led_in(access)
            if all(found.get(name, 0) > term for name, term in before.items()):
                return found


async def until_all_are_known(elections: Elections) -> None:
    """Let rounds pass until all servers have answered."""
    async with asyncio.timeout(BOUND_S):
        while len(elections.servers.missed) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
