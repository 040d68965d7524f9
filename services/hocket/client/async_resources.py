"""What the API can do, for asyncio, made from its description (`make docs`)."""

from collections.abc import Awaitable, Callable
from typing import Any

from hocket.client.async_of_platform import (
    AsyncAuditApi,
    AsyncBackendsApi,
    AsyncCallsApi,
    AsyncContentApi,
    AsyncCostsApi,
    AsyncDeadLettersApi,
    AsyncExperimentsApi,
    AsyncGrantsApi,
    AsyncKeysApi,
    AsyncNodeTypesApi,
    AsyncPlatformApi,
)
from hocket.client.async_of_runs import (
    AsyncApprovalsApi,
    AsyncBulkApi,
    AsyncFlowApi,
    AsyncLogsApi,
    AsyncPipelinesApi,
    AsyncRunsApi,
    AsyncSchedulesApi,
    AsyncStepsApi,
    AsyncWebhooksApi,
)
from hocket.client.requests import ApiRequest

Send = Callable[[ApiRequest, Any], Awaitable[Any]]


class AsyncResources:
    """All operations, by what they are about."""

    def __init__(self, send: Send) -> None:
        self.runs = AsyncRunsApi(send)
        self.steps = AsyncStepsApi(send)
        self.logs = AsyncLogsApi(send)
        self.pipelines = AsyncPipelinesApi(send)
        self.approvals = AsyncApprovalsApi(send)
        self.flow = AsyncFlowApi(send)
        self.bulk = AsyncBulkApi(send)
        self.schedules = AsyncSchedulesApi(send)
        self.webhooks = AsyncWebhooksApi(send)
        self.types = AsyncNodeTypesApi(send)
        self.costs = AsyncCostsApi(send)
        self.calls = AsyncCallsApi(send)
        self.content = AsyncContentApi(send)
        self.experiments = AsyncExperimentsApi(send)
        self.backends = AsyncBackendsApi(send)
        self.dead_letters = AsyncDeadLettersApi(send)
        self.keys = AsyncKeysApi(send)
        self.grants = AsyncGrantsApi(send)
        self.audit = AsyncAuditApi(send)
        self.platform = AsyncPlatformApi(send)
