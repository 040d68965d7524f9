"""What `hocket run` does while nobody leads the stream of tasks."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import nats
import pytest
from nats.js.api import DiscardPolicy

from hocket.cli.remote import task
from hocket.cli.remote.task import Task, publish
from hocket.cli.terminal.errors import BrokerUnreachable, TaskNotStored
from hocket.kit.process.settings import Settings
from hocket.schemas import subjects

TASK = Task(tenant="default", pipeline="hello", input={})
MADE_AFTER_S = 1.0


async def make_stream(nats_url: str, after_s: float = 0.0, **limits: Any) -> None:
    await asyncio.sleep(after_s)
    connection = await nats.connect(nats_url)
    config = {"name": subjects.TASKS, "subjects": [subjects.TASK_FILTER], **limits}
    await connection.jetstream().add_stream(**config)
    await connection.close()


async def test_a_task_for_a_cluster_waits_until_somebody_leads_its_stream(nats_url: str) -> None:
    cluster = f"{nats_url},{nats_url.replace('127.0.0.1', 'localhost')}"
    began, _ = await asyncio.gather(
        publish(cluster, TASK, look=lambda: None), make_stream(nats_url, MADE_AFTER_S)
    )
    assert not began, "it is stored, and nobody takes it"
    connection = await nats.connect(nats_url)
    assert (await connection.jetstream().stream_info(subjects.TASKS)).state.messages == 1
    await connection.close()


async def test_a_single_server_without_the_stream_is_told_of_at_once(nats_url: str) -> None:
    with pytest.raises(BrokerUnreachable, match="no stream TASKS"):
        await publish(nats_url, TASK, look=lambda: None)


async def test_a_stream_that_is_full_is_told_as_that(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "CONFIRM_TIMEOUT_S", 0.01)
    await make_stream(nats_url, max_msgs=1, discard=DiscardPolicy.NEW)
    await publish(nats_url, replace(TASK, key="first"), look=lambda: None)
    with pytest.raises(TaskNotStored, match="TASKS: maximum messages exceeded"):
        await publish(nats_url, replace(TASK, key="second"), look=lambda: None)


async def test_an_input_is_sent_as_the_shortest_json(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a space behind each comma, it would be larger than a task may be."""
    monkeypatch.setattr(task, "CONFIRM_TIMEOUT_S", 0.01)
    given = {"counts": [1] * 250_000, "name": "Größe"}
    await make_stream(nats_url)
    await publish(nats_url, replace(TASK, key="long", input=given), look=lambda: None)
    connection = await nats.connect(nats_url)
    sent = (await connection.jetstream().get_msg(subjects.TASKS, 1)).data or b""
    await connection.close()
    assert json.loads(sent) == given
    assert len(sent) <= Settings.model_fields["max_task_bytes"].default
