"""Messages to receivers that are real servers, and that fail, hang, redirect, and say too much."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from hocket.admin.webhooks import delivery, sending
from hocket.admin.webhooks.delivery import Delivering
from hocket.kit.access.secret_box import SecretBox, SecretUnreadable
from support.administration.schedule_rig import PIPELINE, Clock, moment
from support.administration.webhook_rig import (
    Receiver,
    deliveries,
    delivering,
    put,
    receiving,
    send,
)
from support.rest_rig import Rest, running_rest

BOUND_S = 60.0


@pytest.fixture
def clock() -> Clock:
    return Clock(moment("2026-03-01T00:00"))


@pytest.fixture
async def rest(nats_url: str, database_url: str, clock: Clock) -> AsyncIterator[Rest]:
    async with (
        running_rest(nats_url, database_url, now=clock) as rest,
        asyncio.timeout(BOUND_S),
    ):
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        yield rest


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def sender(rest: Rest) -> AsyncIterator[Delivering]:
    async with delivering(rest) as sender:
        yield sender


async def ask_for_test(rest: Rest, name: str = "ops") -> str:
    answer = await rest.post(f"/v1/webhooks/{name}/test")
    assert answer.status == 202, answer.body
    return str(answer.body["message_id"])


async def test_a_message_is_signed_by_both_secrets_while_one_is_rotated(
    rest: Rest,
    receiver: Receiver,
    sender: Delivering,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_it_is(_own: object, text: str) -> datetime:
        return datetime.fromtimestamp(int(text), UTC)  # the clock of the test is not that of today

    monkeypatch.setattr(Webhook, "_Webhook__verify_timestamp", as_it_is)
    first = (await put(rest, "ops", receiver.url))["secret"]
    assert first.startswith("whsec_")
    message = await ask_for_test(rest)
    await send(sender)
    rotated = await rest.post("/v1/webhooks/ops/rotate", {"overlap_s": 3_600})
    second = rotated.body["secret"]
    again = await rest.post("/v1/webhooks/ops/rotate", {"overlap_s": 60})
    assert (again.status, again.body["code"]) == (409, "webhook_in_rotation")
    assert "2026-03-01T01:00:00+00:00" in again.body["detail"]
    assert "hocket webhooks rotate ops --overlap-s 0" in again.body["detail"]
    await ask_for_test(rest)
    await send(sender)
    clock.pass_s(3_601)
    await ask_for_test(rest)
    await send(sender)

    one, both, last = receiver.got
    assert one.headers["webhook-id"] == message
    assert one.headers["webhook-timestamp"] == "1772323200"
    assert one.body == {
        "type": "webhook.test",
        "timestamp": "2026-03-01T00:00:00.000Z",
        "data": {"webhook": "ops"},
    }
    for got, secrets in ((one, [first]), (both, [second, first]), (last, [second])):
        assert len(got.headers["webhook-signature"].split()) == len(secrets)
        for secret in secrets:
            Webhook(secret).verify(got.text, got.headers)
    shown = await rest.get("/v1/webhooks/ops")
    assert "secret" not in shown.body


async def test_a_rotation_without_overlap_ends_all_former_secrets_at_once(
    rest: Rest, receiver: Receiver, sender: Delivering, clock: Clock
) -> None:
    await put(rest, "ops", receiver.url)
    place = "/v1/webhooks/ops/rotate"
    assert (await rest.post(place, {"overlap_s": 3_600})).status == 200
    assert (await rest.post(place, {"overlap_s": 0})).body["former_until"] is None
    await ask_for_test(rest)
    await send(sender)
    (got,) = receiver.got
    assert len(got.headers["webhook-signature"].split()) == 1
    for passed_s, status in ((0, 200), (3_299, 409), (1, 200), (3_601, 200)):
        clock.pass_s(passed_s)
        assert (await rest.post(place, {"overlap_s": 3_600})).status == status, passed_s


async def test_a_secret_that_cannot_be_read_any_more_is_replaced_by_its_rotation(
    rest: Rest,
    receiver: Receiver,
    sender: Delivering,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The platform's key was changed, and the former one removed."""
    await put(rest, "ops", receiver.url)
    sealed_before = SecretBox.open

    def unreadable(box: SecretBox, sealed: bytes, owner: str) -> bytes:
        if sealed == former:
            raise SecretUnreadable(owner=owner)
        return sealed_before(box, sealed, owner)

    former = await rest.pool.fetchval("SELECT secret FROM hocket.webhook")
    monkeypatch.setattr(SecretBox, "open", unreadable)
    await ask_for_test(rest)
    await send(sender)
    assert receiver.got == []
    assert (await rest.post("/v1/webhooks/ops/rotate")).status == 200
    message = await ask_for_test(rest)
    await send(sender)
    (got,) = receiver.got
    assert got.headers["webhook-id"] == message
    assert len(got.headers["webhook-signature"].split()) == 1


async def test_a_receiver_that_fails_is_tried_again_over_hours_and_then_it_is_dead(
    rest: Rest, receiver: Receiver, sender: Delivering, clock: Clock
) -> None:
    receiver.answers(500)
    await put(rest, "ops", receiver.url)
    message = await ask_for_test(rest)
    began = clock()
    for _ in range(8):
        await send(sender)
        await send(sender)  # nothing is due
        told = (await deliveries(rest, "ops"))[0]
        if told["next_at"] is not None:
            clock.set(told["next_at"].removesuffix("Z"))
    assert (told["state"], told["attempts"], told["last_status"]) == ("dead", 7, 500)
    assert {got.headers["webhook-id"] for got in receiver.got} == {message}
    assert len(receiver.got) == 7
    assert clock() - began > timedelta(hours=17)
    shown = (await rest.get("/v1/webhooks/ops")).body
    assert (shown["enabled"], shown["failing_since"]) == (True, "2026-03-01T00:00:00Z")

    receiver.answer = None
    again = await rest.post(f"/v1/webhooks/ops/deliveries/{message}/redeliver")
    assert (again.status, again.body["state"]) == (202, "pending")
    await send(sender)
    told = (await deliveries(rest, "ops", "?state=delivered"))[0]
    assert (told["message_id"], told["attempts"], told["last_error"]) == (message, 1, "")
    assert (await rest.get("/v1/webhooks/ops")).body["failing_since"] is None


async def test_what_is_dead_of_some_time_is_sent_again_together(
    rest: Rest, receiver: Receiver, sender: Delivering, clock: Clock
) -> None:
    receiver.answers(410)
    await put(rest, "ops", receiver.url)
    old = await ask_for_test(rest)
    await send(sender)
    shown = (await rest.get("/v1/webhooks/ops")).body
    assert (shown["enabled"], shown["disabled_reason"]) == (False, "it answered 410: it is gone")
    receiver.answer = None
    clock.pass_s(3_600)
    await rest.post("/v1/webhooks/ops/enable")
    receiver.answers(410)
    late = await ask_for_test(rest)
    await send(sender)
    receiver.answer = None
    await rest.post("/v1/webhooks/ops/enable")
    asked = {"since": "2026-03-01T00:30:00Z"}
    assert (await rest.post("/v1/webhooks/ops/redeliver", asked)).body == {"deliveries": 1}
    await send(sender)
    told = {one["message_id"]: one["state"] for one in await deliveries(rest, "ops")}
    assert told == {old: "dead", late: "delivered"}
    audit = (await rest.get("/v1/audit")).body["entries"]
    disabled = [one for one in audit if one["action"] == "webhooks.disable"]
    assert {one["actor"] for one in disabled} == {"service:admin"}


async def fail_for_days(rest: Rest, receiver: Receiver, sender: Delivering, clock: Clock) -> None:
    """Have a webhook fail for the first time, and the time be over for which it may."""
    receiver.answers(503)
    await put(rest, "ops", receiver.url)
    await ask_for_test(rest)
    await send(sender)
    clock.pass_s(3 * 86_400 + 1)


async def test_a_webhook_is_not_disabled_for_what_its_former_address_did(
    rest: Rest, receiver: Receiver, sender: Delivering, clock: Clock
) -> None:
    await fail_for_days(rest, receiver, sender, clock)
    await put(rest, "ops", receiver.url + "/corrected")
    await send(sender)
    shown = (await rest.get("/v1/webhooks/ops")).body
    assert (shown["enabled"], shown["failing_since"]) == (True, "2026-03-04T00:00:01Z")


async def test_a_webhook_that_fails_for_days_is_disabled_and_keeps_what_waits(
    rest: Rest, receiver: Receiver, sender: Delivering, clock: Clock
) -> None:
    await fail_for_days(rest, receiver, sender, clock)
    await send(sender)
    shown = (await rest.get("/v1/webhooks/ops")).body
    assert shown["disabled_reason"] == "every try failed since 2026-03-01T00:00:00+00:00"
    count = len(receiver.got)
    clock.pass_s(86_400)
    await send(sender)
    assert len(receiver.got) == count, "nothing is sent while it is disabled"
    receiver.answer = None
    await rest.post("/v1/webhooks/ops/enable")
    await send(sender)
    assert [one["state"] for one in await deliveries(rest, "ops")] == ["delivered"]


async def test_a_redirect_is_not_followed(
    rest: Rest, receiver: Receiver, sender: Delivering
) -> None:
    async with receiving() as other:
        receiver.answers(307, Location=other.url)
        await put(rest, "ops", receiver.url)
        await ask_for_test(rest)
        await send(sender)
        assert other.got == []
    told = (await deliveries(rest, "ops"))[0]
    assert (told["state"], told["last_status"]) == ("pending", 307)
    assert told["last_error"] == "it answered 307, a redirect, which is not followed"


async def test_an_answer_without_an_end_is_cut_off(
    rest: Rest, receiver: Receiver, sender: Delivering
) -> None:
    cut = asyncio.Event()

    async def babble(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b"x" * 65_536)
        except ConnectionError:
            cut.set()
            raise

    receiver.answer = babble
    await put(rest, "ops", receiver.url)
    await ask_for_test(rest)
    await send(sender)
    await cut.wait()
    assert [one["state"] for one in await deliveries(rest, "ops")] == ["delivered"]


async def test_a_receiver_that_hangs_harms_only_itself(
    rest: Rest, receiver: Receiver, sender: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "OF_WEBHOOK", 2)
    monkeypatch.setattr(delivery, "OF_TENANT", 5)
    released = asyncio.Event()

    async def hang(_request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    async with receiving() as hanging:
        hanging.answer = hang
        await put(rest, "slow", hanging.url)
        await put(rest, "ops", receiver.url)
        for _ in range(9):
            await ask_for_test(rest, "slow")
            await ask_for_test(rest)
        while len(await deliveries(rest, "ops", "?state=delivered")) < 9:
            await sender.look()
            await asyncio.sleep(0.005)
        assert len(hanging.got) == 2, "it has its places, and no more"
        released.set()
        await send(sender)
        while len(await deliveries(rest, "slow", "?state=pending")):
            await send(sender)
        assert len(hanging.got) == 9


async def test_a_receiver_that_never_answers_is_given_up_in_time(
    rest: Rest, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "TIMEOUT_S", 0.2)

    async def hang(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    receiver.answer = hang
    await put(rest, "ops", receiver.url)
    await ask_for_test(rest)
    async with delivering(rest) as sender:
        await send(sender)
    told = (await deliveries(rest, "ops"))[0]
    assert (told["state"], told["last_error"]) == ("pending", "it did not answer within 0.2 s")


async def test_a_private_address_is_refused_at_each_try_and_at_the_connection(
    rest: Rest, receiver: Receiver, sender: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are as they were written when the setting allowed the host, or its name was public."""

    async def error_of(url: str) -> str:
        await rest.pool.execute("UPDATE hocket.webhook SET url = $1", url)
        message = await ask_for_test(rest)
        await send(sender)
        shown = await rest.get(f"/v1/webhooks/ops/deliveries/{message}")
        return str(shown.body["last_error"])

    await put(rest, "ops", receiver.url)
    port = receiver.url.rpartition(":")[2]
    for host in ("127.0.0.2", "localhost", "[::1]", "[::ffff:127.0.0.1]"):
        assert "is a private address" in await error_of(f"https://{host}:{port}")
    for host in ("2130706433", "127.1", "0x7f.0.0.1"):
        refused = ("is a private address, or not written as one", "at a private address")
        found = await error_of(f"https://{host}:{port}")
        assert any(reason in found for reason in refused), found
    assert "it has no TLS" in await error_of(f"http://localhost:{port}")
    monkeypatch.setattr(sending, "check_target", lambda *_given: None)
    for scheme in ("http", "https"):
        assert await error_of(f"{scheme}://localhost:{port}") == "its host is at a private address"
    assert receiver.got == []


async def test_what_a_killed_process_was_sending_is_sent_by_another_one(
    rest: Rest, receiver: Receiver, sender: Delivering, clock: Clock
) -> None:
    await put(rest, "ops", receiver.url)
    message = await ask_for_test(rest)
    async with delivering(rest) as killed:
        taken = asyncio.Event()

        async def hang(_request: web.Request) -> web.Response:
            taken.set()
            await asyncio.Event().wait()
            raise AssertionError

        receiver.answer = hang
        running = asyncio.create_task(killed.run())
        await taken.wait()
        running.cancel()
        await asyncio.wait({running})
    receiver.answer = None
    await send(sender)
    assert len(receiver.got) == 1, "the lease holds"
    clock.pass_s(delivery.LEASE_S + 1)
    await send(sender)
    assert [got.headers["webhook-id"] for got in receiver.got] == [message, message]
    assert [one["state"] for one in await deliveries(rest, "ops")] == ["delivered"]


async def test_old_deliveries_go(rest: Rest, receiver: Receiver, clock: Clock) -> None:
    await put(rest, "ops", receiver.url)
    await ask_for_test(rest)
    clock.pass_s(15 * 86_400)
    late = await ask_for_test(rest)
    async with delivering(rest) as sender:
        running = asyncio.create_task(sender.run())
        while [one["message_id"] for one in await deliveries(rest, "ops")] != [late]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait({running})


async def test_no_secret_is_in_any_row_or_in_the_audit(
    rest: Rest, receiver: Receiver, sender: Delivering
) -> None:
    made = await put(rest, "ops", f"{receiver.url}?token=hidden")
    rotated = (await rest.post("/v1/webhooks/ops/rotate")).body["secret"]
    await ask_for_test(rest)
    await send(sender)
    tables = await rest.pool.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'hocket'"
        " AND table_type = 'BASE TABLE'"
    )
    for secret in (made["secret"], rotated):
        raw = base64.b64decode(secret.removeprefix("whsec_"))
        for table in tables:
            for row in await rest.pool.fetch(f"SELECT t::text FROM hocket.{table[0]} t"):
                assert secret not in row[0]
                assert raw.hex() not in row[0]
    audit = json.dumps((await rest.get("/v1/audit")).body)
    assert "hidden" not in audit
    assert "webhooks.rotate" in audit
