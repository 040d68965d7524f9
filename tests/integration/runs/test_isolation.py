"""What one run brings ends that run: beside each attack another tenant's runs end in time, on this
owner of the partition and on the next one."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
from nats.aio.client import Client

from hocket.cli.local.platform import Platform
from hocket.schemas import ids, subjects
from hocket.schemas.errors import HocketError

BOUND_S = 60
HEALTHY_S = 45
SLO_MS = 20_000
"""Of what harms: it must end, and its caller hear so, well within BOUND_S, also on a busy machine."""
UNSTORABLE = "no-postgres-stores-this"
ECHO = {"type": "python", "handler": "hocket.workers.builtin:echo"}
HEALTHY = {"pipeline": "healthy", "nodes": {"a": ECHO, "b": {**ECHO, "needs": ["a"]}}}
PLAIN = {"pipeline": "plain", "nodes": {"a": ECHO, "b": {**ECHO, "needs": ["a"]}}}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
async def platform(folder: Path) -> AsyncIterator[Platform]:
    services = ("coordinator", "worker", "admin")
    environment = {"HOCKET_PARTITIONS": "1"}
    async with Platform(
        folder / "data", coordinators=2, services=services, env=environment
    ) as running:
        await apply(running, HEALTHY, "acme")
        await apply(running, PLAIN)
        connection = await asyncpg.connect(running.database_url)
        for table in ("run", "step"):  # a fault of one value that only Postgres finds
            await connection.execute(
                f"ALTER TABLE hocket.{table} ADD CONSTRAINT fault CHECK "
                f"(input::text NOT LIKE '%{UNSTORABLE}%' AND output::text NOT LIKE '%{UNSTORABLE}%')"
            )
        await connection.close()
        yield running


@pytest.fixture
async def client(platform: Platform) -> AsyncIterator[Client]:
    connection = await nats.connect(platform.nats_url)
    yield connection
    await connection.close()


async def apply(platform: Platform, document: dict[str, Any], tenant: str = "default") -> None:
    await asyncio.to_thread(platform.api(tenant).post, "/v1/pipelines", document)


async def ask(
    client: Client, pipeline: str, body: Any, *, tenant: str = "default", **headers: str
) -> dict[str, Any]:
    """Publish a task and return what its caller hears of its end."""
    inbox = client.new_inbox()
    heard = await client.subscribe(inbox, max_msgs=1)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    await client.jetstream().publish(
        subjects.task(tenant, pipeline), payload, headers={"Hocket-Reply-To": inbox, **named}
    )
    told: dict[str, Any] = json.loads((await heard.next_msg(timeout=BOUND_S)).data)
    return told


async def all_is_well(client: Client) -> None:
    """Runs of another tenant end, in time."""
    async with asyncio.timeout(HEALTHY_S):
        ends = await asyncio.gather(
            *(ask(client, "healthy", {"n": n}, tenant="acme") for n in range(5))
        )
    assert [end["status"] for end in ends] == ["succeeded"] * 5


async def owner_of(platform: Platform) -> str:
    connection = await asyncpg.connect(platform.database_url)
    owner: str = await connection.fetchval("SELECT owner FROM hocket.partition")
    await connection.close()
    return owner


async def fetch(platform: Platform, query: str, *arguments: Any) -> list[Any]:
    connection = await asyncpg.connect(platform.database_url)
    rows: list[Any] = await connection.fetch(query, *arguments)
    await connection.close()
    return rows


async def kill_the_owner(platform: Platform) -> None:
    name = await owner_of(platform)
    await platform.kill(name)


async def test_a_value_that_only_postgres_refuses_ends_its_run(
    platform: Platform, client: Client
) -> None:
    for body in ({"x": UNSTORABLE}, {"x": {UNSTORABLE: 1}}):
        end, _ = await asyncio.gather(ask(client, "plain", body), all_is_well(client))
        assert (end["status"], end["error"]["code"]) == ("failed", "run_not_storable")
        assert "fault" in end["error"]["message"]
    await kill_the_owner(platform)
    await all_is_well(client)
    (row,) = await fetch(
        platform,
        "SELECT count(*) FILTER (WHERE status = 'running') AS running, "
        "count(*) FILTER (WHERE error ->> 'code' = 'run_not_storable') AS refused FROM hocket.run",
    )
    assert (row["running"], row["refused"]) == (0, 2)
    letters = await asyncio.to_thread(platform.api().get, "/v1/dead-letters?source=run")
    assert {one["error"]["code"] for one in letters["dead_letters"]} == {"run_not_storable"}


async def test_an_owner_that_is_killed_while_rows_are_refused_leaves_the_same_to_the_next(
    platform: Platform, client: Client
) -> None:
    refused = [asyncio.create_task(ask(client, "plain", {"x": UNSTORABLE})) for _ in range(20)]
    healthy = asyncio.create_task(all_is_well(client))
    await refused[0]
    await kill_the_owner(platform)
    codes = {(await one)["error"]["code"] for one in refused}
    assert codes == {"run_not_storable"}
    await asyncio.wait({healthy})
    await all_is_well(client)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"traceparent", b"00-\x00"),
        (b"Hocket-Idempotency-Key", b"k\x00"),
        (b"Hocket-Idempotency-Key", b"\xff\xfe"),
        (b"ce-id", b"i\x00"),
        (b"Nats-Msg-Id", b"m\x00"),
        (b"Hocket-Budget-Usd", b"1e-20000"),
        (b"Hocket-Deadline-Ms", b"nan"),
        (b"Hocket-Idempotency-Key", b"k" * 6_000),
    ],
)
async def test_a_header_that_cannot_be_kept_is_refused(
    platform: Platform, client: Client, header: bytes, value: bytes
) -> None:
    inbox = client.new_inbox()
    heard = await client.subscribe(inbox, max_msgs=1)
    head = b"NATS/1.0\r\nHocket-Reply-To: %b\r\n%b: %b\r\n\r\n" % (inbox.encode(), header, value)
    subject = subjects.task("default", "plain").encode()
    wire: Any = client
    await wire._send_command(
        b"HPUB %b %d %d\r\n%b{}\r\n" % (subject, len(head), len(head) + 2, head)
    )
    await client.flush()
    told = json.loads((await heard.next_msg(timeout=BOUND_S)).data)
    assert (told["status"], told["error"]["field"]) == ("rejected", header.decode())
    await all_is_well(client)


HOSTILE: dict[str, dict[str, Any]] = {
    "a loop that nests its output": {
        "a": {
            **ECHO,
            "with": {"p": ["{{ previous }}"]},
            "loop": {"until": "round > 299", "max_rounds": 300, "on_exhausted": "accept"},
        }
    },
    "a loop that doubles its output": {
        "a": {
            **ECHO,
            "with": {"p": ["{{ previous }}", "{{ previous }}"]},
            "loop": {"until": "round > 40", "max_rounds": 40, "on_exhausted": "accept"},
        }
    },
    "maps over 4,000 items of 100,000 characters": {
        name: {
            **ECHO,
            "with": {"x": "{{ 'a' * 100000 }}"},
            "map": {
                "over": "{{ range(4000) | list }}",
                "max_items": 4_000,
                "concurrency": 4_000,
            },
        }
        for name in ("a", "b", "c")
    },
    "a pipeline that calls itself over a map": {
        "a": {
            "type": "pipeline",
            "pipeline": "hostile",
            "when": "true",
            "with": {"n": 1},
            "map": {"over": "{{ range(40) | list }}"},
        }
    },
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_what_a_pipeline_makes_of_itself_ends_it(
    platform: Platform, client: Client, what: str
) -> None:
    document = {"pipeline": "hostile", "slo_ms": SLO_MS, "nodes": HOSTILE[what]}
    try:
        await apply(platform, document)
    except HocketError as refused:  # so much the better
        if refused.code != "invalid_input":
            raise
        return
    end, _ = await asyncio.gather(ask(client, "hostile", {}), all_is_well(client))
    assert end["status"] in ("failed", "expired"), end
    await kill_the_owner(platform)
    await all_is_well(client)


async def test_a_run_whose_pipeline_cannot_be_read_any_more_does_not_stop_the_next_owner(
    platform: Platform, client: Client
) -> None:
    waiting = {
        "pipeline": "waiting",
        "slo_ms": 600_000,
        "nodes": {"a": ECHO, "ok": {"type": "approval", "needs": ["a"]}},
    }
    await apply(platform, waiting)
    key = "unreadable"
    ended = asyncio.create_task(ask(client, "waiting", {}, Hocket_Idempotency_Key=key))
    run_id = ids.run_id("default", key)
    async with asyncio.timeout(BOUND_S):
        waits = "SELECT FROM hocket.step WHERE run_id = $1 AND state = 'waiting'"
        while not await fetch(platform, waits, run_id):  # noqa: ASYNC110 - Postgres does not tell
            await asyncio.sleep(0.05)
    await fetch(
        platform, """UPDATE hocket.pipeline SET spec = '{"nodes": 1}' WHERE name = 'waiting'"""
    )
    await kill_the_owner(platform)
    with suppress(HocketError):  # it may have ended: one that waits for a person may be parked
        await asyncio.to_thread(platform.api().post, f"/v1/runs/{run_id}/cancel", {})
    end = await ended
    ends = (("failed", "run_not_restorable"), ("cancelled", "cancelled"))  # the first to come
    assert (end["status"], end["error"]["code"]) in ends
    (row,) = await fetch(
        platform,
        "SELECT count(*) AS open FROM hocket.step WHERE run_id = $1 AND finished_at IS NULL",
        run_id,
    )
    assert row["open"] == 0
    await all_is_well(client)
