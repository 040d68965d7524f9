"""A REST service with a pipeline, a schedule and a webhook, whose console is asked."""

from collections.abc import AsyncIterator

import pytest

from support.administration.console_rig import PIPELINE, RUN
from support.administration.webhook_rig import add_webhook
from support.rest_rig import Rest, running_rest
from support.values.hostile_markup import PAYLOADS


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
        schedule = {"cron": "0 2 * * *", "task": {"pipeline": PIPELINE["pipeline"]}}
        assert (await rest.ask("PUT", "/v1/schedules/nightly", json=schedule)).status == 201
        await add_webhook(rest, "ops", text="".join(PAYLOADS), run_id=RUN)
        yield rest
