"""The `nats` node against a real server: what each answer becomes, and what a hostile one costs."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro import ServiceConfig, add_service
from nats.micro.request import Request

from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import HocketError
from hocket.workers.nats.errors import NatsServiceInvalid
from hocket.workers.nats.services import NatsServices
from hocket.workers.nodes.nats import NatsNode

Ask = Callable[..., Awaitable[dict[str, Any]]]
LIMIT = 50_000
SUBJECT = "unit-nats-node"
LONG_MS = 60_000.0


class Rig(NamedTuple):
    """A service's side, and the node that asks it."""

    client: Client
    services: NatsServices
    ask: Ask


def entry(url: str, **fields: Any) -> dict[str, Any]:
    parts = urlsplit(url)
    way_in = (
        {} if parts.username is None else {"user": parts.username, "password": "os.environ/PASS"}
    )
    server = f"nats://{parts.hostname}:{parts.port}"
    return {"servers": server, "subject": SUBJECT, "max_bytes": LIMIT, **way_in, **fields}


def services_of(url: str, entries: dict[str, Any]) -> NatsServices:
    return NatsServices(entries, {"PASS": urlsplit(url).password or ""})


def asking(services: NatsServices) -> Ask:
    node = NatsNode(services)

    async def ask(*, within_ms: float = LONG_MS, service: str = "it", **config: Any) -> Any:
        context = SimpleNamespace(
            config={"service": service, **config},
            input={"word": "lamp", "many": ["a", 2]},
            tenant="t",
            deadline_at_ms=now_ms() + within_ms,
            step=SimpleNamespace(run_id="r1", step="a[0]~b"),
            traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        )
        return await node(cast(Any, context))

    return ask


@pytest.fixture
async def rig(nats_url: str) -> AsyncIterator[Rig]:
    client = await nats.connect(nats_url)
    services = services_of(
        nats_url,
        {
            "it": entry(nats_url),
            "parts": entry(nats_url, endpoints=["quote", "history.daily"]),
            "theirs": entry(nats_url, tenants=["other"]),
        },
    )
    yield Rig(client, services, asking(services))
    await services.close()
    await client.close()


async def answering(rig: Rig, data: bytes, **headers: str) -> list[Msg]:
    """Answer each request alike; return where they are kept."""
    heard: list[Msg] = []

    async def answer(msg: Msg) -> None:
        heard.append(msg)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        await rig.client.publish(msg.reply, data, headers=sent or None)

    await rig.client.subscribe(SUBJECT, cb=answer)
    await rig.client.flush()
    return heard


async def test_json_is_a_value_and_the_request_says_which_step_it_is_for(rig: Rig) -> None:
    heard = await answering(rig, b'{"total": 3}', x_page="2")
    given = {"item": "{{ input.word }}", "of": "{{ input.many }}"}
    answer = await rig.ask(body=given, headers={"X-Word": "{{ input.word }}"})
    assert answer == {"headers": {"x-page": "2"}, "body": {"total": 3}}
    (asked,) = heard
    assert json.loads(asked.data) == {"item": "lamp", "of": ["a", 2]}
    assert asked.headers is not None
    assert asked.headers["idempotency-key"] == "r1:a[0]~b"
    assert asked.headers["x-word"] == "lamp"
    assert asked.headers["traceparent"].startswith("00-aaaa")
    await rig.ask(body=given)
    assert heard[1].headers is not None
    assert heard[1].headers["idempotency-key"] == asked.headers["idempotency-key"]


@pytest.mark.parametrize(
    ("data", "kind", "body"),
    [
        (b"", "", None),
        (b"hello \xff", "text/plain", "hello \ufffd"),
        (b"<a/>", "application/xml", "<a/>"),
        (b"[" + b"1," * 40_000 + b"1]", "", [1] * 40_001),
    ],
)
async def test_what_comes_back_is_read_as_what_it_is(
    rig: Rig, data: bytes, kind: str, body: Any
) -> None:
    big = rig.services.get("it", "t").settings.model_copy(update={"max_bytes": 100_000})
    rig.services.get("it", "t").settings = big
    await answering(rig, data, **({"content_type": kind} if kind else {}))
    answer = await rig.ask(body="ping", headers={"content-type": "text/plain"})
    assert answer["body"] == body


@pytest.mark.parametrize(
    ("data", "headers", "code", "retryable"),
    [
        (b"x" * (LIMIT + 1), {}, "nats_answer_too_large", False),
        (b"{nope", {}, "nats_answer_unreadable", False),
        (b"[" * 30_000, {}, "nats_answer_unreadable", False),
        (b'{"a": NaN}', {}, "nats_answer_unreadable", False),
        (b"\x89PNG", {}, "nats_answer_unreadable", False),
        (b"", {"Nats_Service_Error_Code": "400"}, "nats_rejected", False),
        (b"", {"Nats_Service_Error_Code": "401"}, "nats_not_authorized", False),
        (b"", {"Nats_Service_Error_Code": "408"}, "nats_failed", True),
        (b"", {"Nats_Service_Error_Code": "429"}, "nats_rate_limited", True),
        (b"", {"Nats_Service_Error_Code": "500"}, "nats_failed", True),
        (b"", {"Nats_Service_Error_Code": "4" * 999}, "nats_failed", True),
        (b"", {"Nats_Service_Error": "down\x1b[31m " + "x" * 9_000}, "nats_failed", True),
    ],
)
async def test_a_bad_answer_is_an_error_of_the_step(
    rig: Rig, data: bytes, headers: dict[str, str], code: str, retryable: bool
) -> None:
    await answering(rig, data, **headers)
    with pytest.raises(HocketError) as refused:
        await rig.ask(body=1)
    info = refused.value.info()
    assert (info.code, info.retryable, info.component) == (code, retryable, "nats:it")
    assert len(info.message) < 1_000
    assert "\x1b" not in info.message


# nats-py, on Python 3.12 and later
@pytest.mark.filterwarnings("ignore:.*utcnow.* is deprecated:DeprecationWarning")
async def test_a_service_of_the_services_api_answers_and_refuses(rig: Rig) -> None:
    async def quote(request: Request) -> None:
        if json.loads(request.data) == "lamp":
            await request.respond(b"12.5")
        else:
            await request.respond_error(code="404", description="There is no such thing.")

    service = await add_service(rig.client, ServiceConfig(name="parts", version="1.0.0"))
    await service.add_group(name=SUBJECT).add_endpoint(name="quote", handler=quote)
    assert (await rig.ask(service="parts", endpoint="quote", body="lamp"))["body"] == 12.5
    with pytest.raises(HocketError, match="404: There is no such thing") as refused:
        await rig.ask(service="parts", endpoint="quote", body="moon")
    assert refused.value.code == "nats_rejected"
    await service.stop()


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"service": "parts"}, "endpoint"),
        ({"service": "parts", "endpoint": "history"}, "endpoint"),
        ({"service": "parts", "endpoint": "quote.more"}, "endpoint"),
        ({"endpoint": "quote"}, "endpoint"),
        ({"headers": {"Nats-Msg-Id": "1"}}, "headers.Nats-Msg-Id"),
        ({"headers": {"idempotency-key": "1"}}, "headers.idempotency-key"),
        ({"headers": {"a b": "1"}}, "headers.a b"),
        ({"headers": {"a": "1\r\nb: 2"}}, "headers.a"),
        ({"headers": {"a": "{{ input.many }}"}}, "headers.a"),
        ({"body": "x" * 600_000}, "body"),
    ],
)
async def test_what_may_not_be_asked_is_told_with_its_field(
    rig: Rig, asked: dict[str, Any], field: str
) -> None:
    with pytest.raises(HocketError) as refused:
        await rig.ask(**asked)
    assert (refused.value.code, refused.value.fields["field"]) == ("invalid_input", field)


async def test_a_service_of_other_tenants_is_not_there(rig: Rig) -> None:
    with pytest.raises(HocketError, match="its services: it, parts") as refused:
        await rig.ask(service="theirs")
    assert refused.value.code == "nats_service_unknown"


async def test_nobody_there_is_told_at_once_and_silence_in_its_time(rig: Rig) -> None:
    with pytest.raises(HocketError, match="Nobody answers") as refused:
        await rig.ask()
    assert refused.value.code == "nats_no_responders"
    assert refused.value.info().retryable

    async def nothing(_msg: Msg) -> None:
        return

    await rig.client.subscribe(SUBJECT, cb=nothing)
    for _ in range(2):  # nats-py's first PING may be sent before what waits for its flusher
        await rig.client.flush()
    with pytest.raises(HocketError, match="did not answer within") as late:
        await rig.ask(within_ms=300)
    assert late.value.code == "nats_timeout"


async def test_a_lost_connection_is_made_anew(rig: Rig) -> None:
    await answering(rig, b"1")
    assert (await rig.ask())["body"] == 1
    first = await rig.services.get("it", "t").connection()
    await first.close()
    assert (await rig.ask())["body"] == 1
    assert await rig.services.get("it", "t").connection() is not first


async def answering_raw(rig: Rig, head: bytes) -> None:
    """Answer each request on SUBJECT.odd with headers as they are, and each on SUBJECT.good with 1."""

    async def odd(msg: Msg) -> None:
        size = len(head)
        sent = b"HPUB %b %d %d\r\n%b2\r\n" % (msg.reply.encode(), size, size + 1, head)
        transport = rig.client._transport
        assert transport is not None
        transport.write(sent)

    async def good(msg: Msg) -> None:
        await rig.client.publish(msg.reply, b"1")

    await rig.client.subscribe(f"{SUBJECT}.odd", cb=odd)
    await rig.client.subscribe(f"{SUBJECT}.good", cb=good)
    await rig.client.flush()


@pytest.mark.parametrize(
    "head",
    [
        b"NATS/1.0 abc \xff\r\nx: y\r\n\r\n",
        b"NATS/1.0 \xff\xff\xff\r\n\r\n",
        b"NATS/1.0\r\n\xff\xfe no colon\r\n\r\n",
        b"NATS/1.0\r\nx\xff: \xff\r\n\r\n",
    ],
)
async def test_an_answer_with_odd_headers_leaves_the_connection_to_the_others(
    rig: Rig, nats_url: str, head: bytes
) -> None:
    await answering_raw(rig, head)
    services = services_of(nats_url, {"it": entry(nats_url, endpoints=["odd", "good"])})
    try:
        ask = asking(services)
        connection = await services.get("it", "t").connection()
        assert (await ask(endpoint="odd"))["body"] == 2
        assert (await ask(endpoint="good"))["body"] == 1
        assert await services.get("it", "t").connection() is connection
    finally:
        await services.close()


async def test_an_answer_with_too_many_headers_is_refused_unread(rig: Rig, nats_url: str) -> None:
    lines = b"".join(b"h%d:b\r\n" % number for number in range(20_000))
    await answering_raw(rig, b"NATS/1.0\r\n%b\r\n" % lines)
    services = services_of(nats_url, {"it": entry(nats_url, endpoints=["odd", "good"])})
    try:
        ask = asking(services)
        with pytest.raises(HocketError, match="its headers have more than 65536 bytes") as refused:
            await ask(endpoint="odd")
        assert refused.value.code == "nats_answer_unreadable"
        assert (await ask(endpoint="good"))["body"] == 1
    finally:
        await services.close()


async def test_a_connection_that_can_read_nothing_more_is_made_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(_chunk: bytes) -> None:
        raise ArithmeticError("something that nobody thought of")

    await answering(rig, b"1")
    first = await rig.services.get("it", "t").connection()
    monkeypatch.setattr(first._ps, "parse", unreadable)
    reading = first._reading_task
    assert reading is not None
    await first._send_ping()
    await asyncio.wait({reading})
    assert first.is_closed
    assert (await rig.ask())["body"] == 1


async def test_a_server_that_never_greets_costs_the_step_its_time_and_the_next_server_answers(
    rig: Rig, nats_url: str
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    dead = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    services = services_of(nats_url, {"it": entry(nats_url, servers=[dead])})
    try:
        with pytest.raises(HocketError) as refused:
            await asking(services)(within_ms=200)
        assert refused.value.code == "nats_timeout"
    finally:
        await services.close()
        listening.close()
    await answering(rig, b"1")
    both = entry(nats_url)
    both["servers"] = ["nats://127.0.0.1:1", both["servers"]]
    services = services_of(nats_url, {"it": both})
    try:
        assert (await asking(services)())["body"] == 1
    finally:
        await services.close()


async def test_a_connection_that_breaks_ends_the_requests_over_it_at_once(nats_url: str) -> None:
    """A server by hand, which is gone when both requests have reached it."""
    asked = asyncio.Event()
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        writer.write(b'INFO {"headers":true,"max_payload":1000000}\r\n')
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            requests += line.startswith(b"HPUB")
            if requests == 2:
                asked.set()
                break
        writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    lost = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    services = services_of(nats_url, {"it": entry(nats_url, servers=[lost])})
    ask = asking(services)
    try:
        async with asyncio.timeout(LONG_MS / 2000):
            told = await asyncio.gather(ask(), ask(), return_exceptions=True)
    finally:
        await services.close()
        listening.close()
    assert asked.is_set()
    for error in told:
        assert isinstance(error, HocketError)
        assert (error.code, error.retryable) == ("nats_unreachable", True)
        assert "the connection broke" in str(error)


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"servers": "http://x"}, "servers", "nats://host:4222"),
        ({"servers": "nats://me:secret@x"}, "servers", "credentials belong in"),
        ({"servers": []}, "servers", "at least 1"),
        ({"subject": "a.*"}, "subject", "not a subject. Use letters"),
        ({"subject": "a..b"}, "subject", "not a subject. Use letters"),
        ({"token": "os.environ/NOT_THERE"}, "token", "NOT_THERE is not set"),
        ({"user": "me"}, "entry", "`user` and `password`"),
        ({"credentials": "/nowhere.creds"}, "credentials", "no file /nowhere.creds"),
        ({"ca": "/nowhere.pem"}, "ca", "no file /nowhere.pem"),
        ({"max_bytes": 10**9}, "max_bytes", "less than or equal"),
        ({"nope": 1}, "nope", "Extra inputs"),
    ],
)
def test_a_wrong_entry_is_told_with_field_and_cure(
    fields: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(NatsServiceInvalid, match=says) as refused:
        NatsServices({"it": {"servers": "nats://x", "subject": "a", **fields}}, {})
    told = refused.value.fields
    assert (told["nats_service"], told["field"]) == ("it", field)
    assert told["cure"]


def test_a_file_that_holds_no_certificates_is_told(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    with pytest.raises(NatsServiceInvalid, match="no certificates"):
        NatsServices({"it": {"servers": "tls://x", "subject": "a", "ca": str(file)}}, {})
