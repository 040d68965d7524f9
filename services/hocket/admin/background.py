"""The background work of a REST process: bulk operations, schedules, canaries, webhooks, node types."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from hocket.admin.bulk import turns
from hocket.admin.context import Context
from hocket.admin.pipelines import canaries
from hocket.admin.schedules import firing
from hocket.admin.webhooks import intake
from hocket.admin.webhooks.delivery import Delivering
from hocket.admin.webhooks.sending import WebhookSender


@asynccontextmanager
async def working(context: Context, registry: CollectorRegistry) -> AsyncIterator[None]:
    """Run all background work while the block lasts; whatever is interrupted continues at another
    process. Metrics go to `registry`."""
    async with WebhookSender(context.webhook_private_hosts) as sender:
        work = {
            "node-types": context.node_types.run(context.bus, context.pool),
            "bulk": turns.run(context),
            "schedules": firing.run(context),
            "canaries": canaries.run(context),
            "webhook-intake": intake.run(context),
            "webhook-approvals": intake.run_approvals(context),
            "webhooks": Delivering(context, sender, registry).run(),
        }
        tasks = [asyncio.create_task(one, name=name) for name, one in work.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
