"""The clock of webhooks is Postgres's: a REST process whose own clock is wrong announces the same
events, and sends at the same times."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hocket.admin.context import Context, utc_now
from hocket.admin.webhooks import end_reader, intake, tries, upkeep
from hocket.admin.webhooks.delivery import Delivering
from hocket.admin.webhooks.sending import WebhookSender
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import subjects
from support.administration.webhook_rig import (
    Receiver,
    deliveries,
    ended,
    put,
    receiving,
    send,
)
from support.rest_rig import Rest, running_rest

BOUND_S = 60.0
URL = "https://hooks.example.com/x"


def ahead() -> datetime:
    return utc_now() + timedelta(days=1_000)


def behind() -> datetime:
    return utc_now() - timedelta(days=1_000)


@pytest.fixture(params=[ahead, behind], ids=["ahead", "behind"])
async def wrong(
    nats_url: str,
    database_url: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Rest]:
    """An API whose own clock is wrong."""
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        context: Context = replace(rest.app.state.context, now=request.param)
        monkeypatch.setattr(rest.app.state, "context", context)
        yield rest


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def take_end(rest: Rest, run_id: str, at: datetime) -> None:
    """Take in the end of a run at some moment."""
    end = ended(run_id, finished_at_ms=at.timestamp() * 1_000)
    subject = subjects.event(end.tenant, end.pipeline, end.kind)
    message = RawMessage(subject, "nobody", end.model_dump_json().encode(), b"")
    await intake.take(rest.app.state.context, [message])


async def database_now(rest: Rest) -> datetime:
    context: Context = rest.app.state.context
    return await context.database_now(rest.pool)


async def told(rest: Rest) -> list[str]:
    return sorted(one["run_id"] for one in await deliveries(rest, "ops") if one["run_id"])


async def test_a_webhook_is_told_of_what_ends_after_it_was_created_or_enabled(wrong: Rest) -> None:
    before = await database_now(wrong)
    await put(wrong, "ops", URL)
    await take_end(wrong, "before", before)
    await take_end(wrong, "created", await database_now(wrong))
    assert await told(wrong) == ["created"]

    assert (await wrong.post("/v1/webhooks/ops/disable")).status == 200
    before = await database_now(wrong)
    assert (await wrong.post("/v1/webhooks/ops/enable")).status == 200
    await take_end(wrong, "before", before)
    await take_end(wrong, "enabled", await database_now(wrong))
    assert await told(wrong) == ["created", "enabled"]

    await put(wrong, "ops", URL, enabled=False)
    before = await database_now(wrong)
    await put(wrong, "ops", URL, enabled=True)
    await take_end(wrong, "before", before)
    await take_end(wrong, "put", await database_now(wrong))
    assert await told(wrong) == ["created", "enabled", "put"]


async def test_ends_are_read_from_when_the_first_webhook_was_enabled_if_that_is_not_long_ago(
    wrong: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []

    class Pull:
        def __init__(self, *_given: Any, **said: Any) -> None:
            made.append(said)

        async def batch(self, *_given: Any) -> tuple[RawMessage, ...]:
            return ()

    monkeypatch.setattr(end_reader, "RecordPull", Pull)
    await put(wrong, "ops", URL)
    enabled = "UPDATE hocket.webhook SET enabled_at = now() - $1::interval RETURNING enabled_at"
    for ago in (end_reader.MAX_AGE / 2, end_reader.MAX_AGE * 2):
        enabled_at = await wrong.pool.fetchval(enabled, ago)
        before = await database_now(wrong)
        await end_reader.EndReader(wrong.app.state.context, ack_wait_ms=1_000.0).batch()
        after, since = await database_now(wrong), made.pop()["since"]
        if ago < end_reader.MAX_AGE:
            assert since == enabled_at
        else:
            assert before <= since + end_reader.MAX_AGE <= after


@pytest.mark.parametrize("sends", ["right", "wrong"])
async def test_a_message_is_sent_at_once_with_the_right_time_and_again_when_it_is_due(
    wrong: Rest, receiver: Receiver, sends: str
) -> None:
    """Also by another process than that which has written it, whose clock is right."""
    context: Context = wrong.app.state.context
    await put(wrong, "ops", receiver.url)
    assert (await wrong.post("/v1/webhooks/ops/rotate", {"overlap_s": 3_600})).status == 200
    before = await database_now(wrong)
    await take_end(wrong, "r1", before)
    assert (await wrong.post("/v1/webhooks/ops/test")).status == 202
    receiver.answers(500)
    sender = replace(context, now=utc_now) if sends == "right" else context
    async with WebhookSender(context.webhook_private_hosts) as connections:
        await send(Delivering(sender, connections, CollectorRegistry()))
    after = await database_now(wrong)
    assert len(receiver.got) == 2
    for got in receiver.got:
        signed_s = int(got.headers["webhook-timestamp"])
        assert int(before.timestamp()) <= signed_s <= int(after.timestamp())
        assert len(got.headers["webhook-signature"].split()) == 2, "the former secret signs as well"
    rows = await wrong.pool.fetch("SELECT * FROM hocket.webhook_delivery")
    longest = timedelta(seconds=tries.PAUSES_S[0] * (1 + tries.JITTER))
    for row in rows:
        assert before <= row["created_at"] <= row["tried_at"] <= after
        assert row["tried_at"] < row["next_at"] <= after + longest


async def test_only_old_deliveries_go(wrong: Rest) -> None:
    await put(wrong, "ops", URL)
    await take_end(wrong, "old", await database_now(wrong))
    await wrong.pool.execute(
        "UPDATE hocket.webhook_delivery SET created_at = now() - interval '15 days'"
    )
    await take_end(wrong, "new", await database_now(wrong))
    await upkeep.Upkeep(wrong.app.state.context).look()
    assert await told(wrong) == ["new"]
