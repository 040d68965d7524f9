"""What the API can do, without asyncio, made from its description (`make docs`)."""

from collections.abc import Callable
from typing import Any

from hocket.client.requests import ApiRequest
from hocket.client.sync_of_platform import (
    AuditApi,
    BackendsApi,
    CallsApi,
    ContentApi,
    CostsApi,
    DeadLettersApi,
    ExperimentsApi,
    GrantsApi,
    KeysApi,
    NodeTypesApi,
    PlatformApi,
)
from hocket.client.sync_of_runs import (
    ApprovalsApi,
    BulkApi,
    FlowApi,
    LogsApi,
    PipelinesApi,
    RunsApi,
    SchedulesApi,
    StepsApi,
    WebhooksApi,
)

Send = Callable[[ApiRequest, Any], Any]


class Resources:
    """All operations, by what they are about."""

    def __init__(self, send: Send) -> None:
        self.runs = RunsApi(send)
        self.steps = StepsApi(send)
        self.logs = LogsApi(send)
        self.pipelines = PipelinesApi(send)
        self.approvals = ApprovalsApi(send)
        self.flow = FlowApi(send)
        self.bulk = BulkApi(send)
        self.schedules = SchedulesApi(send)
        self.webhooks = WebhooksApi(send)
        self.types = NodeTypesApi(send)
        self.costs = CostsApi(send)
        self.calls = CallsApi(send)
        self.content = ContentApi(send)
        self.experiments = ExperimentsApi(send)
        self.backends = BackendsApi(send)
        self.dead_letters = DeadLettersApi(send)
        self.keys = KeysApi(send)
        self.grants = GrantsApi(send)
        self.audit = AuditApi(send)
        self.platform = PlatformApi(send)
