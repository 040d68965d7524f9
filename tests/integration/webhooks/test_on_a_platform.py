"""On a whole platform, with the permissions on NATS that each process has: a schedule begins a run,
whose end and whose approval a webhook is told of."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from hocket.cli.local.platform import Platform
from support.administration.webhook_rig import Receiver, receiving

BOUND_S = 60.0
PIPELINE = {
    "pipeline": "report",
    "nodes": {
        "ok": {"type": "approval", "prompt": "Send it?"},
        "echo": {
            "type": "python",
            "handler": "hocket.workers.builtin:echo",
            "needs": ["ok"],
        },
    },
}


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    environment = {"HOCKET_WEBHOOK_PRIVATE_HOSTS": "127.0.0.1"}
    async with Platform(folder / "d", worker_types=("python",), env=environment) as running:
        yield running
    shutil.rmtree(folder)


async def test_a_schedule_begins_a_run_and_a_webhook_is_told_of_it(platform: Platform) -> None:
    api = platform.api()

    async def ask(method: str, *given: Any) -> Any:
        return await asyncio.to_thread(getattr(api, method), *given)

    async def heard(receiver: Receiver, event: str) -> dict[str, Any]:
        while True:
            for got in receiver.got:
                if got.body["type"] == event:
                    told: dict[str, Any] = Webhook(made["secret"]).verify(got.text, got.headers)
                    return dict(told["data"])
            receiver.arrived.clear()
            await receiver.arrived.wait()

    async with receiving() as receiver, asyncio.timeout(BOUND_S):
        await ask("post", "/v1/pipelines", PIPELINE)
        made = await ask("put", "/v1/webhooks/ops", {"url": receiver.url})
        schedule = {"cron": "0 0 1 1 *", "task": {"pipeline": "report"}}
        await ask("put", "/v1/schedules/yearly", schedule)
        fired = await ask("post", "/v1/schedules/yearly/trigger")
        waiting = await heard(receiver, "run.waiting")
        assert (waiting["run_id"], waiting["step"]) == (fired["run_id"], "ok")
        await ask(
            "post",
            f"/v1/runs/{fired['run_id']}/signals",
            {"name": "ok", "payload": {"approved": True}},
        )
        end = await heard(receiver, "run.succeeded")
        assert (end["run_id"], end["met_deadline"]) == (fired["run_id"], True)
        [firing] = (await ask("get", "/v1/schedules/yearly/firings"))["firings"]
        assert (firing["state"], firing["run_status"]) == ("fired", "succeeded")
