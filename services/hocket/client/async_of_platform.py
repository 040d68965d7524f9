"""What the API can do with a platform, for asyncio, made from its description (`make docs`)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from hocket.client.requests import ApiRequest, given, path_of
from hocket.schemas.access.bodies import (
    AuditEntry,
    AuditPage,
    AuditVerdict,
    KeyDetail,
    KeyList,
    KeyMade,
    OwnKey,
    RoleList,
)
from hocket.schemas.access.grants import Grants
from hocket.schemas.administration.backends import BackendList, ModelRateList
from hocket.schemas.administration.budgets import BudgetUses
from hocket.schemas.administration.data import DataDeleted
from hocket.schemas.administration.platform_parts import (
    PartitionList,
    QueueList,
    Tenant,
    TenantList,
    Worker,
    WorkerList,
)
from hocket.schemas.rest import (
    CacheSavings,
    CallAttempt,
    CallExplained,
    CallList,
    DeadLetter,
    DeadLetterList,
    ExperimentList,
    KindCosts,
    NodeCosts,
    NodeTypeDetail,
    NodeTypeList,
    NodeTypeSummary,
    OutcomeSent,
    PipelineCosts,
    Redriven,
    RunCosts,
    SystemHealth,
)
from hocket.schemas.tracing.content import ContentList, KeptContent

Send = Callable[[ApiRequest, Any], Awaitable[Any]]


class AsyncNodeTypesApi:
    """`client.types`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(self, *, after: str | None = None, limit: int | None = None) -> NodeTypeList:
        """List the node types that workers run or used to run, with their queues; `after` is `next` of
        the previous page.
        """
        answer: NodeTypeList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("types"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            NodeTypeList,
        )
        return answer

    async def each(self, *, limit: int | None = None) -> AsyncIterator[NodeTypeSummary]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(limit=limit, after=after)
            for one in page.types:
                yield one
            if (after := page.next) is None:
                return

    async def get(self, name: str) -> NodeTypeDetail:
        """Show a node type with the JSON Schemas of its config, input and output."""
        answer: NodeTypeDetail = await self._send(
            ApiRequest(method="GET", path=path_of("types", name), may_repeat=True), NodeTypeDetail
        )
        return answer

    async def drain(
        self,
        name: str,
        *,
        queue: str | None = None,
        for_s: float | None = None,
        reason: str | None = None,
    ) -> QueueList:
        """Stop dispatching steps of a node type, or of one of its queues, for a time: by default one
        hour, at most a week. Steps already at workers continue; the others wait while their
        deadlines keep running. Requires an all-tenants key.
        """
        answer: QueueList = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("types", name, "drain"),
                body=given({"queue": queue, "for_s": for_s, "reason": reason}),
            ),
            QueueList,
        )
        return answer

    async def resume(self, name: str, *, queue: str | None = None) -> QueueList:
        """Resume dispatching steps of a drained node type, or of one of its queues. Requires an
        all-tenants key.
        """
        answer: QueueList = await self._send(
            ApiRequest(
                method="POST", path=path_of("types", name, "resume"), body=given({"queue": queue})
            ),
            QueueList,
        )
        return answer


class AsyncCostsApi:
    """`client.costs`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def by_pipeline(
        self, *, pipeline: str | None = None, from_: str | None = None, to: str | None = None
    ) -> PipelineCosts:
        """Show costs by pipeline and day; by default, of the last 30 days."""
        answer: PipelineCosts = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "pipelines"),
                query={"pipeline": pipeline, "from": from_, "to": to},
                may_repeat=True,
            ),
            PipelineCosts,
        )
        return answer

    async def budgets(self) -> BudgetUses:
        """Show how much is spent of the configured budgets in the current hour, day or month (UTC),
        for budgets that apply to the tenant's calls. Single-tenant keys see a budget that is set
        for every tenant only once their tenant has spent from it.
        """
        answer: BudgetUses = await self._send(
            ApiRequest(method="GET", path=path_of("costs", "budgets"), may_repeat=True), BudgetUses
        )
        return answer

    async def saved_by_cache(
        self, *, pipeline: str | None = None, from_: str | None = None, to: str | None = None
    ) -> CacheSavings:
        """Show what steps served from the cache would have cost, by node and day."""
        answer: CacheSavings = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "cache"),
                query={"pipeline": pipeline, "from": from_, "to": to},
                may_repeat=True,
            ),
            CacheSavings,
        )
        return answer

    async def by_kind(
        self, *, pipeline: str | None = None, from_: str | None = None, to: str | None = None
    ) -> KindCosts:
        """Show costs by node, day and kind: calls, repeated attempts, and branches that lost their
        race.
        """
        answer: KindCosts = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "kinds"),
                query={"pipeline": pipeline, "from": from_, "to": to},
                may_repeat=True,
            ),
            KindCosts,
        )
        return answer

    async def by_node(
        self, *, pipeline: str | None = None, version: int | None = None
    ) -> NodeCosts:
        """Show costs by pipeline version, node, model and backend, over all time."""
        answer: NodeCosts = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "nodes"),
                query={"pipeline": pipeline, "version": version},
                may_repeat=True,
            ),
            NodeCosts,
        )
        return answer

    async def by_run(
        self,
        *,
        pipeline: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> RunCosts:
        """Show costs by run, most expensive first; by default, of the last 30 days."""
        answer: RunCosts = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "runs"),
                query={"pipeline": pipeline, "since": since, "limit": limit},
                may_repeat=True,
            ),
            RunCosts,
        )
        return answer


class AsyncCallsApi:
    """`client.calls`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self, run: str, *, limit: int | None = None, after: str | None = None
    ) -> CallList:
        """List the calls of a run, oldest first: each attempt separately, with its routing decision."""
        answer: CallList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("calls"),
                query={"run": run, "limit": limit, "after": after},
                may_repeat=True,
            ),
            CallList,
        )
        return answer

    async def each(self, run: str, *, limit: int | None = None) -> AsyncIterator[CallAttempt]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(run, limit=limit, after=after)
            for one in page.calls:
                yield one
            if (after := page.next) is None:
                return

    async def explain(self, call_id: str) -> CallExplained:
        """Show every attempt of a call: the candidate replicas, why one was chosen, and the outcome;
        or why no backend was called.
        """
        answer: CallExplained = await self._send(
            ApiRequest(method="GET", path=path_of("calls", call_id), may_repeat=True), CallExplained
        )
        return answer


class AsyncContentApi:
    """`client.content`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self,
        run: str | None = None,
        *,
        call: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> ContentList:
        """List the stored prompts and answers of the calls of a `run`, or those of one `call`, which
        need not name a run. What is stored, and how, is set in the section `content:` of the
        gateway's configuration.
        """
        answer: ContentList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("content"),
                query={"run": run, "call": call, "limit": limit, "after": after},
                may_repeat=True,
            ),
            ContentList,
        )
        return answer

    async def each(
        self, run: str | None = None, *, call: str | None = None, limit: int | None = None
    ) -> AsyncIterator[KeptContent]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(run, call=call, limit=limit, after=after)
            for one in page.content:
                yield one
            if (after := page.next) is None:
                return


class AsyncExperimentsApi:
    """`client.experiments`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(self) -> ExperimentList:
        """List experiments of the tenant and of all tenants, with their arms and each arm's recent
        results.
        """
        answer: ExperimentList = await self._send(
            ApiRequest(method="GET", path=path_of("experiments"), may_repeat=True), ExperimentList
        )
        return answer

    async def report_outcome(self, run_id: str, good: bool) -> OutcomeSent:
        """Report whether the result of a run was good. Experiments judge the arms that the run's calls
        went to by it, in the place of the run's status. Returns 202; gateways that restart forget
        it.
        """
        answer: OutcomeSent = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("experiments", "outcomes"),
                body=given({"run_id": run_id, "good": good}),
            ),
            OutcomeSent,
        )
        return answer

    async def roll_back(self, experiment: str, arm: str) -> ExperimentList:
        """Switch off an arm: its runs go to the control. For an experiment of all tenants, this
        requires an all-tenants key.
        """
        answer: ExperimentList = await self._send(
            ApiRequest(
                method="POST", path=path_of("experiments", experiment, "arms", arm, "rollback")
            ),
            ExperimentList,
        )
        return answer

    async def restore(self, experiment: str, arm: str) -> ExperimentList:
        """Switch an arm back on and discard its past results. For an experiment of all tenants, this
        requires an all-tenants key.
        """
        answer: ExperimentList = await self._send(
            ApiRequest(
                method="POST", path=path_of("experiments", experiment, "arms", arm, "restore")
            ),
            ExperimentList,
        )
        return answer


class AsyncBackendsApi:
    """`client.backends`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(self) -> BackendList:
        """List the replicas of all backends, as seen by each gateway."""
        answer: BackendList = await self._send(
            ApiRequest(method="GET", path=path_of("backends"), may_repeat=True), BackendList
        )
        return answer

    async def drain(
        self, backend: str, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Stop sending calls to a backend; calls in flight finish. New calls go to other replicas and
        fallbacks, or wait if there are none. The drain lasts until the backend is resumed, and also
        applies to gateways started later.
        """
        answer: BackendList = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("backends", backend, "drain"),
                body=given({"replica": replica, "reason": reason}),
            ),
            BackendList,
        )
        return answer

    async def resume(
        self, backend: str, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Resume sending calls to a drained backend."""
        answer: BackendList = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("backends", backend, "resume"),
                body=given({"replica": replica, "reason": reason}),
            ),
            BackendList,
        )
        return answer

    async def warm(
        self, backend: str, for_s: float, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Start a backend's replicas now and keep them ready for a time. Only for replicas that
        gateways start and stop (`warm:` in the configuration).
        """
        answer: BackendList = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("backends", backend, "warm"),
                body=given({"replica": replica, "reason": reason, "for_s": for_s}),
            ),
            BackendList,
        )
        return answer

    async def reset(
        self, backend: str, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Close a backend's breakers at all gateways, and end any pause that it requested."""
        answer: BackendList = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("backends", backend, "reset"),
                body=given({"replica": replica, "reason": reason}),
            ),
            BackendList,
        )
        return answer

    async def rates(self) -> ModelRateList:
        """List the usage of tenant and model rate limits in the last minute: those of the caller's
        tenant and those shared by all tenants. All-tenants keys see every limit.
        """
        answer: ModelRateList = await self._send(
            ApiRequest(method="GET", path=path_of("model-rates"), may_repeat=True), ModelRateList
        )
        return answer


class AsyncDeadLettersApi:
    """`client.dead_letters`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self,
        *,
        limit: int | None = None,
        source: Literal["task", "step", "log", "run", "usage"] | None = None,
        after: str | None = None,
        unattributed: bool | None = None,
    ) -> DeadLetterList:
        """List the tenant's dead letters, newest first, with the beginning of each payload. A page
        with large payloads has fewer letters than `limit`; `next` continues.
        """
        answer: DeadLetterList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("dead-letters"),
                query={
                    "limit": limit,
                    "source": source,
                    "after": after,
                    "unattributed": unattributed,
                },
                may_repeat=True,
            ),
            DeadLetterList,
        )
        return answer

    async def each(
        self,
        *,
        limit: int | None = None,
        source: Literal["task", "step", "log", "run", "usage"] | None = None,
        unattributed: bool | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(
                limit=limit, source=source, unattributed=unattributed, after=after
            )
            for one in page.dead_letters:
                yield one
            if (after := page.next) is None:
                return

    async def get(self, seq: int, *, unattributed: bool | None = None) -> DeadLetter:
        """Show a dead letter with its full payload and headers."""
        answer: DeadLetter = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("dead-letters", seq),
                query={"unattributed": unattributed},
                may_repeat=True,
            ),
            DeadLetter,
        )
        return answer

    async def drop(self, seq: int, *, unattributed: bool | None = None) -> None:
        """Permanently remove a dead letter."""
        await self._send(
            ApiRequest(
                method="DELETE",
                path=path_of("dead-letters", seq),
                query={"unattributed": unattributed},
            ),
            None,
        )

    async def redrive(self, seq: int, *, unattributed: bool | None = None) -> Redriven:
        """Publish a dead letter again on its original subject, then remove it here. Fails with 409 for
        a step whose run has continued without it: retry the run instead. A usage record is booked
        regardless of who wrote it.
        """
        answer: Redriven = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("dead-letters", seq, "redrive"),
                query={"unattributed": unattributed},
            ),
            Redriven,
        )
        return answer


class AsyncKeysApi:
    """`client.keys`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def create(
        self,
        name: str,
        role: Literal["viewer", "developer", "operator", "auditor", "admin", "worker"],
        *,
        scopes: Sequence[
            Literal[
                "platform.read",
                "runs.read",
                "runs.submit",
                "runs.cancel",
                "runs.signal",
                "content.read",
                "pipelines.read",
                "pipelines.check",
                "pipelines.apply",
                "pipelines.release",
                "schedules.read",
                "schedules.manage",
                "webhooks.read",
                "webhooks.manage",
                "costs.read",
                "models.read",
                "models.call",
                "steps.run",
                "experiments.read",
                "experiments.control",
                "models.control",
                "workers.control",
                "dead_letters.read",
                "dead_letters.manage",
                "keys.read",
                "keys.manage",
                "grants.read",
                "grants.manage",
                "audit.read",
                "data.delete",
            ]
        ]
        | None = None,
        models: Sequence[str] | None = None,
        pools: Sequence[str] | None = None,
        all_tenants: bool | None = None,
        requests_per_s: float | None = None,
        expires_at: datetime | None = None,
    ) -> KeyMade:
        """Create a key for the request's tenant and return its text, which is shown only once. It
        cannot have more permissions than the key of the request.
        """
        answer: KeyMade = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("keys"),
                body=given(
                    {
                        "name": name,
                        "role": role,
                        "scopes": scopes,
                        "models": models,
                        "pools": pools,
                        "all_tenants": all_tenants,
                        "requests_per_s": requests_per_s,
                        "expires_at": expires_at,
                    }
                ),
            ),
            KeyMade,
        )
        return answer

    async def list(
        self,
        *,
        all: bool | None = None,
        all_tenants: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> KeyList:
        """List keys, newest first. Secrets are never included."""
        answer: KeyList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("keys"),
                query={"all": all, "all_tenants": all_tenants, "after": after, "limit": limit},
                may_repeat=True,
            ),
            KeyList,
        )
        return answer

    async def each(
        self, *, all: bool | None = None, all_tenants: bool | None = None, limit: int | None = None
    ) -> AsyncIterator[KeyDetail]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(all=all, all_tenants=all_tenants, limit=limit, after=after)
            for one in page.keys:
                yield one
            if (after := page.next) is None:
                return

    async def own(self) -> OwnKey:
        """Show the key used for the request and what it may do."""
        answer: OwnKey = await self._send(
            ApiRequest(method="GET", path=path_of("keys", "own"), may_repeat=True), OwnKey
        )
        return answer

    async def get(self, key_id: str) -> KeyDetail:
        """Show a key."""
        answer: KeyDetail = await self._send(
            ApiRequest(method="GET", path=path_of("keys", key_id), may_repeat=True), KeyDetail
        )
        return answer

    async def revoke(self, key_id: str) -> KeyDetail:
        """Permanently revoke a key: it is refused everywhere within seconds, and its open requests
        end.
        """
        answer: KeyDetail = await self._send(
            ApiRequest(method="DELETE", path=path_of("keys", key_id)), KeyDetail
        )
        return answer

    async def rotate(self, key_id: str, *, overlap_s: float | None = None) -> KeyMade:
        """Issue a new secret for a key and return its text, which is shown only once. The former
        secret stays valid for another `overlap_s` seconds, but not after the key has expired. Until
        5 minutes before its end, the key is rotated again (409) only with an `overlap_s` of 0,
        which ends all secrets but the new one. An expired key gets no other secret.
        """
        answer: KeyMade = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("keys", key_id, "rotate"),
                body=given({"overlap_s": overlap_s}),
            ),
            KeyMade,
        )
        return answer

    async def roles(self) -> RoleList:
        """List the roles and their permissions."""
        answer: RoleList = await self._send(
            ApiRequest(method="GET", path=path_of("roles"), may_repeat=True), RoleList
        )
        return answer


class AsyncGrantsApi:
    """`client.grants`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def get(self) -> Grants:
        """Show what the pipelines of the request's tenant may use. A list that is `null` is
        unrestricted.
        """
        answer: Grants = await self._send(
            ApiRequest(method="GET", path=path_of("grants"), may_repeat=True), Grants
        )
        return answer

    async def set(
        self,
        *,
        node_types: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        databases: Sequence[str] | None = None,
        http_services: Sequence[str] | None = None,
        mcp_servers: Sequence[str] | None = None,
        nats_services: Sequence[str] | None = None,
        if_match: int | str | None = None,
    ) -> Grants:
        """Replace what the pipelines of the request's tenant may use; `{}` lets them use everything.
        Requires an all-tenants key, so that tenants cannot extend their own grants.
        """
        answer: Grants = await self._send(
            ApiRequest(
                method="PUT",
                path=path_of("grants"),
                headers={"if-match": if_match},
                body=given(
                    {
                        "node_types": node_types,
                        "queues": queues,
                        "models": models,
                        "databases": databases,
                        "http_services": http_services,
                        "mcp_servers": mcp_servers,
                        "nats_services": nats_services,
                    }
                ),
            ),
            Grants,
        )
        return answer


class AsyncAuditApi:
    """`client.audit`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(self, *, after: int | None = None, limit: int | None = None) -> AuditPage:
        """List audit log entries, oldest first: those of the key's tenant, or all of them for an
        all-tenants key.
        """
        answer: AuditPage = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("audit"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            AuditPage,
        )
        return answer

    async def each(self, *, limit: int | None = None) -> AsyncIterator[AuditEntry]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: int | None = None
        while True:
            page = await self.list(limit=limit, after=after)
            for one in page.entries:
                yield one
            if (after := page.next) is None:
                return

    async def verify(
        self,
        *,
        head: str | None = None,
        from_row: int | None = None,
        from_hash: str | None = None,
        limit: int | None = None,
    ) -> AuditVerdict:
        """Read the audit log and check that each row follows the one before it. A long log takes a
        while: with `limit`, check it in parts. Requires an all-tenants key.
        """
        answer: AuditVerdict = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("audit", "verdict"),
                query={"head": head, "from_row": from_row, "from_hash": from_hash, "limit": limit},
                may_repeat=True,
            ),
            AuditVerdict,
        )
        return answer


class AsyncPlatformApi:
    """`client.platform`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def health(self) -> SystemHealth:
        """Show the state of the platform's parts, as seen by this process."""
        answer: SystemHealth = await self._send(
            ApiRequest(method="GET", path=path_of("health"), may_repeat=True), SystemHealth
        )
        return answer

    async def tenants(self, *, after: str | None = None, limit: int | None = None) -> TenantList:
        """List the tenants that have runs, pipelines or keys. Requires an all-tenants key."""
        answer: TenantList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("tenants"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            TenantList,
        )
        return answer

    async def each_tenant(self, *, limit: int | None = None) -> AsyncIterator[Tenant]:
        """Yield what `tenants` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.tenants(limit=limit, after=after)
            for one in page.tenants:
                yield one
            if (after := page.next) is None:
                return

    async def workers(self, *, after: str | None = None, limit: int | None = None) -> WorkerList:
        """List the workers that announced themselves within the last seconds, with the steps they
        take. Requires an all-tenants key.
        """
        answer: WorkerList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("workers"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            WorkerList,
        )
        return answer

    async def each_worker(self, *, limit: int | None = None) -> AsyncIterator[Worker]:
        """Yield what `workers` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.workers(limit=limit, after=after)
            for one in page.workers:
                yield one
            if (after := page.next) is None:
                return

    async def queues(self) -> QueueList:
        """List step queues with their backlog, for all tenants together. Requires an all-tenants key."""
        answer: QueueList = await self._send(
            ApiRequest(method="GET", path=path_of("queues"), may_repeat=True), QueueList
        )
        return answer

    async def partitions(self) -> PartitionList:
        """List the partitions and the coordinators that own them. Requires an all-tenants key."""
        answer: PartitionList = await self._send(
            ApiRequest(method="GET", path=path_of("partitions"), may_repeat=True), PartitionList
        )
        return answer

    async def delete_data(
        self, tenant: str, *, label: Mapping[str, str] | None = None, dry_run: bool | None = None
    ) -> DataDeleted:
        """Permanently delete the runs of the request's tenant, or only those with a label, with their
        results, calls and all other data. Runs in flight must have ended. The deletion is recorded
        in the audit log.
        """
        answer: DataDeleted = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("data", "delete"),
                body=given({"tenant": tenant, "label": label, "dry_run": dry_run}),
            ),
            DataDeleted,
        )
        return answer
