"""What the API can do with a platform, without asyncio, made from its description (`make docs`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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

Send = Callable[[ApiRequest, Any], Any]


class NodeTypesApi:
    """`client.types`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self, *, after: str | None = None, limit: int | None = None) -> NodeTypeList:
        """List the node types that workers run or used to run, with their queues; `after` is `next` of
        the previous page.
        """
        answer: NodeTypeList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("types"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            NodeTypeList,
        )
        return answer

    def each(self, *, limit: int | None = None) -> Iterator[NodeTypeSummary]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(limit=limit, after=after)
            yield from page.types
            if (after := page.next) is None:
                return

    def get(self, name: str) -> NodeTypeDetail:
        """Show a node type with the JSON Schemas of its config, input and output."""
        answer: NodeTypeDetail = self._send(
            ApiRequest(method="GET", path=path_of("types", name), may_repeat=True), NodeTypeDetail
        )
        return answer

    def drain(
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
        answer: QueueList = self._send(
            ApiRequest(
                method="POST",
                path=path_of("types", name, "drain"),
                body=given({"queue": queue, "for_s": for_s, "reason": reason}),
            ),
            QueueList,
        )
        return answer

    def resume(self, name: str, *, queue: str | None = None) -> QueueList:
        """Resume dispatching steps of a drained node type, or of one of its queues. Requires an
        all-tenants key.
        """
        answer: QueueList = self._send(
            ApiRequest(
                method="POST", path=path_of("types", name, "resume"), body=given({"queue": queue})
            ),
            QueueList,
        )
        return answer


class CostsApi:
    """`client.costs`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def by_pipeline(
        self, *, pipeline: str | None = None, from_: str | None = None, to: str | None = None
    ) -> PipelineCosts:
        """Show costs by pipeline and day; by default, of the last 30 days."""
        answer: PipelineCosts = self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "pipelines"),
                query={"pipeline": pipeline, "from": from_, "to": to},
                may_repeat=True,
            ),
            PipelineCosts,
        )
        return answer

    def budgets(self) -> BudgetUses:
        """Show how much is spent of the configured budgets in the current hour, day or month (UTC),
        for budgets that apply to the tenant's calls. Single-tenant keys see a budget that is set
        for every tenant only once their tenant has spent from it.
        """
        answer: BudgetUses = self._send(
            ApiRequest(method="GET", path=path_of("costs", "budgets"), may_repeat=True), BudgetUses
        )
        return answer

    def saved_by_cache(
        self, *, pipeline: str | None = None, from_: str | None = None, to: str | None = None
    ) -> CacheSavings:
        """Show what steps served from the cache would have cost, by node and day."""
        answer: CacheSavings = self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "cache"),
                query={"pipeline": pipeline, "from": from_, "to": to},
                may_repeat=True,
            ),
            CacheSavings,
        )
        return answer

    def by_kind(
        self, *, pipeline: str | None = None, from_: str | None = None, to: str | None = None
    ) -> KindCosts:
        """Show costs by node, day and kind: calls, repeated attempts, and branches that lost their
        race.
        """
        answer: KindCosts = self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "kinds"),
                query={"pipeline": pipeline, "from": from_, "to": to},
                may_repeat=True,
            ),
            KindCosts,
        )
        return answer

    def by_node(self, *, pipeline: str | None = None, version: int | None = None) -> NodeCosts:
        """Show costs by pipeline version, node, model and backend, over all time."""
        answer: NodeCosts = self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "nodes"),
                query={"pipeline": pipeline, "version": version},
                may_repeat=True,
            ),
            NodeCosts,
        )
        return answer

    def by_run(
        self,
        *,
        pipeline: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> RunCosts:
        """Show costs by run, most expensive first; by default, of the last 30 days."""
        answer: RunCosts = self._send(
            ApiRequest(
                method="GET",
                path=path_of("costs", "runs"),
                query={"pipeline": pipeline, "since": since, "limit": limit},
                may_repeat=True,
            ),
            RunCosts,
        )
        return answer


class CallsApi:
    """`client.calls`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self, run: str, *, limit: int | None = None, after: str | None = None) -> CallList:
        """List the calls of a run, oldest first: each attempt separately, with its routing decision."""
        answer: CallList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("calls"),
                query={"run": run, "limit": limit, "after": after},
                may_repeat=True,
            ),
            CallList,
        )
        return answer

    def each(self, run: str, *, limit: int | None = None) -> Iterator[CallAttempt]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(run, limit=limit, after=after)
            yield from page.calls
            if (after := page.next) is None:
                return

    def explain(self, call_id: str) -> CallExplained:
        """Show every attempt of a call: the candidate replicas, why one was chosen, and the outcome;
        or why no backend was called.
        """
        answer: CallExplained = self._send(
            ApiRequest(method="GET", path=path_of("calls", call_id), may_repeat=True), CallExplained
        )
        return answer


class ContentApi:
    """`client.content`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(
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
        answer: ContentList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("content"),
                query={"run": run, "call": call, "limit": limit, "after": after},
                may_repeat=True,
            ),
            ContentList,
        )
        return answer

    def each(
        self, run: str | None = None, *, call: str | None = None, limit: int | None = None
    ) -> Iterator[KeptContent]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(run, call=call, limit=limit, after=after)
            yield from page.content
            if (after := page.next) is None:
                return


class ExperimentsApi:
    """`client.experiments`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self) -> ExperimentList:
        """List experiments of the tenant and of all tenants, with their arms and each arm's recent
        results.
        """
        answer: ExperimentList = self._send(
            ApiRequest(method="GET", path=path_of("experiments"), may_repeat=True), ExperimentList
        )
        return answer

    def report_outcome(self, run_id: str, good: bool) -> OutcomeSent:
        """Report whether the result of a run was good. Experiments judge the arms that the run's calls
        went to by it, in the place of the run's status. Returns 202; gateways that restart forget
        it.
        """
        answer: OutcomeSent = self._send(
            ApiRequest(
                method="POST",
                path=path_of("experiments", "outcomes"),
                body=given({"run_id": run_id, "good": good}),
            ),
            OutcomeSent,
        )
        return answer

    def roll_back(self, experiment: str, arm: str) -> ExperimentList:
        """Switch off an arm: its runs go to the control. For an experiment of all tenants, this
        requires an all-tenants key.
        """
        answer: ExperimentList = self._send(
            ApiRequest(
                method="POST", path=path_of("experiments", experiment, "arms", arm, "rollback")
            ),
            ExperimentList,
        )
        return answer

    def restore(self, experiment: str, arm: str) -> ExperimentList:
        """Switch an arm back on and discard its past results. For an experiment of all tenants, this
        requires an all-tenants key.
        """
        answer: ExperimentList = self._send(
            ApiRequest(
                method="POST", path=path_of("experiments", experiment, "arms", arm, "restore")
            ),
            ExperimentList,
        )
        return answer


class BackendsApi:
    """`client.backends`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self) -> BackendList:
        """List the replicas of all backends, as seen by each gateway."""
        answer: BackendList = self._send(
            ApiRequest(method="GET", path=path_of("backends"), may_repeat=True), BackendList
        )
        return answer

    def drain(
        self, backend: str, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Stop sending calls to a backend; calls in flight finish. New calls go to other replicas and
        fallbacks, or wait if there are none. The drain lasts until the backend is resumed, and also
        applies to gateways started later.
        """
        answer: BackendList = self._send(
            ApiRequest(
                method="POST",
                path=path_of("backends", backend, "drain"),
                body=given({"replica": replica, "reason": reason}),
            ),
            BackendList,
        )
        return answer

    def resume(
        self, backend: str, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Resume sending calls to a drained backend."""
        answer: BackendList = self._send(
            ApiRequest(
                method="POST",
                path=path_of("backends", backend, "resume"),
                body=given({"replica": replica, "reason": reason}),
            ),
            BackendList,
        )
        return answer

    def warm(
        self, backend: str, for_s: float, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Start a backend's replicas now and keep them ready for a time. Only for replicas that
        gateways start and stop (`warm:` in the configuration).
        """
        answer: BackendList = self._send(
            ApiRequest(
                method="POST",
                path=path_of("backends", backend, "warm"),
                body=given({"replica": replica, "reason": reason, "for_s": for_s}),
            ),
            BackendList,
        )
        return answer

    def reset(
        self, backend: str, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Close a backend's breakers at all gateways, and end any pause that it requested."""
        answer: BackendList = self._send(
            ApiRequest(
                method="POST",
                path=path_of("backends", backend, "reset"),
                body=given({"replica": replica, "reason": reason}),
            ),
            BackendList,
        )
        return answer

    def rates(self) -> ModelRateList:
        """List the usage of tenant and model rate limits in the last minute: those of the caller's
        tenant and those shared by all tenants. All-tenants keys see every limit.
        """
        answer: ModelRateList = self._send(
            ApiRequest(method="GET", path=path_of("model-rates"), may_repeat=True), ModelRateList
        )
        return answer


class DeadLettersApi:
    """`client.dead_letters`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(
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
        answer: DeadLetterList = self._send(
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

    def each(
        self,
        *,
        limit: int | None = None,
        source: Literal["task", "step", "log", "run", "usage"] | None = None,
        unattributed: bool | None = None,
    ) -> Iterator[DeadLetter]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(limit=limit, source=source, unattributed=unattributed, after=after)
            yield from page.dead_letters
            if (after := page.next) is None:
                return

    def get(self, seq: int, *, unattributed: bool | None = None) -> DeadLetter:
        """Show a dead letter with its full payload and headers."""
        answer: DeadLetter = self._send(
            ApiRequest(
                method="GET",
                path=path_of("dead-letters", seq),
                query={"unattributed": unattributed},
                may_repeat=True,
            ),
            DeadLetter,
        )
        return answer

    def drop(self, seq: int, *, unattributed: bool | None = None) -> None:
        """Permanently remove a dead letter."""
        self._send(
            ApiRequest(
                method="DELETE",
                path=path_of("dead-letters", seq),
                query={"unattributed": unattributed},
            ),
            None,
        )

    def redrive(self, seq: int, *, unattributed: bool | None = None) -> Redriven:
        """Publish a dead letter again on its original subject, then remove it here. Fails with 409 for
        a step whose run has continued without it: retry the run instead. A usage record is booked
        regardless of who wrote it.
        """
        answer: Redriven = self._send(
            ApiRequest(
                method="POST",
                path=path_of("dead-letters", seq, "redrive"),
                query={"unattributed": unattributed},
            ),
            Redriven,
        )
        return answer


class KeysApi:
    """`client.keys`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def create(
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
        answer: KeyMade = self._send(
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

    def list(
        self,
        *,
        all: bool | None = None,
        all_tenants: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> KeyList:
        """List keys, newest first. Secrets are never included."""
        answer: KeyList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("keys"),
                query={"all": all, "all_tenants": all_tenants, "after": after, "limit": limit},
                may_repeat=True,
            ),
            KeyList,
        )
        return answer

    def each(
        self, *, all: bool | None = None, all_tenants: bool | None = None, limit: int | None = None
    ) -> Iterator[KeyDetail]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(all=all, all_tenants=all_tenants, limit=limit, after=after)
            yield from page.keys
            if (after := page.next) is None:
                return

    def own(self) -> OwnKey:
        """Show the key used for the request and what it may do."""
        answer: OwnKey = self._send(
            ApiRequest(method="GET", path=path_of("keys", "own"), may_repeat=True), OwnKey
        )
        return answer

    def get(self, key_id: str) -> KeyDetail:
        """Show a key."""
        answer: KeyDetail = self._send(
            ApiRequest(method="GET", path=path_of("keys", key_id), may_repeat=True), KeyDetail
        )
        return answer

    def revoke(self, key_id: str) -> KeyDetail:
        """Permanently revoke a key: it is refused everywhere within seconds, and its open requests
        end.
        """
        answer: KeyDetail = self._send(
            ApiRequest(method="DELETE", path=path_of("keys", key_id)), KeyDetail
        )
        return answer

    def rotate(self, key_id: str, *, overlap_s: float | None = None) -> KeyMade:
        """Issue a new secret for a key and return its text, which is shown only once. The former
        secret stays valid for another `overlap_s` seconds, but not after the key has expired. Until
        5 minutes before its end, the key is rotated again (409) only with an `overlap_s` of 0,
        which ends all secrets but the new one. An expired key gets no other secret.
        """
        answer: KeyMade = self._send(
            ApiRequest(
                method="POST",
                path=path_of("keys", key_id, "rotate"),
                body=given({"overlap_s": overlap_s}),
            ),
            KeyMade,
        )
        return answer

    def roles(self) -> RoleList:
        """List the roles and their permissions."""
        answer: RoleList = self._send(
            ApiRequest(method="GET", path=path_of("roles"), may_repeat=True), RoleList
        )
        return answer


class GrantsApi:
    """`client.grants`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def get(self) -> Grants:
        """Show what the pipelines of the request's tenant may use. A list that is `null` is
        unrestricted.
        """
        answer: Grants = self._send(
            ApiRequest(method="GET", path=path_of("grants"), may_repeat=True), Grants
        )
        return answer

    def set(
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
        answer: Grants = self._send(
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


class AuditApi:
    """`client.audit`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self, *, after: int | None = None, limit: int | None = None) -> AuditPage:
        """List audit log entries, oldest first: those of the key's tenant, or all of them for an
        all-tenants key.
        """
        answer: AuditPage = self._send(
            ApiRequest(
                method="GET",
                path=path_of("audit"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            AuditPage,
        )
        return answer

    def each(self, *, limit: int | None = None) -> Iterator[AuditEntry]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: int | None = None
        while True:
            page = self.list(limit=limit, after=after)
            yield from page.entries
            if (after := page.next) is None:
                return

    def verify(
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
        answer: AuditVerdict = self._send(
            ApiRequest(
                method="GET",
                path=path_of("audit", "verdict"),
                query={"head": head, "from_row": from_row, "from_hash": from_hash, "limit": limit},
                may_repeat=True,
            ),
            AuditVerdict,
        )
        return answer


class PlatformApi:
    """`client.platform`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def health(self) -> SystemHealth:
        """Show the state of the platform's parts, as seen by this process."""
        answer: SystemHealth = self._send(
            ApiRequest(method="GET", path=path_of("health"), may_repeat=True), SystemHealth
        )
        return answer

    def tenants(self, *, after: str | None = None, limit: int | None = None) -> TenantList:
        """List the tenants that have runs, pipelines or keys. Requires an all-tenants key."""
        answer: TenantList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("tenants"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            TenantList,
        )
        return answer

    def each_tenant(self, *, limit: int | None = None) -> Iterator[Tenant]:
        """Yield what `tenants` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.tenants(limit=limit, after=after)
            yield from page.tenants
            if (after := page.next) is None:
                return

    def workers(self, *, after: str | None = None, limit: int | None = None) -> WorkerList:
        """List the workers that announced themselves within the last seconds, with the steps they
        take. Requires an all-tenants key.
        """
        answer: WorkerList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("workers"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            WorkerList,
        )
        return answer

    def each_worker(self, *, limit: int | None = None) -> Iterator[Worker]:
        """Yield what `workers` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.workers(limit=limit, after=after)
            yield from page.workers
            if (after := page.next) is None:
                return

    def queues(self) -> QueueList:
        """List step queues with their backlog, for all tenants together. Requires an all-tenants key."""
        answer: QueueList = self._send(
            ApiRequest(method="GET", path=path_of("queues"), may_repeat=True), QueueList
        )
        return answer

    def partitions(self) -> PartitionList:
        """List the partitions and the coordinators that own them. Requires an all-tenants key."""
        answer: PartitionList = self._send(
            ApiRequest(method="GET", path=path_of("partitions"), may_repeat=True), PartitionList
        )
        return answer

    def delete_data(
        self, tenant: str, *, label: Mapping[str, str] | None = None, dry_run: bool | None = None
    ) -> DataDeleted:
        """Permanently delete the runs of the request's tenant, or only those with a label, with their
        results, calls and all other data. Runs in flight must have ended. The deletion is recorded
        in the audit log.
        """
        answer: DataDeleted = self._send(
            ApiRequest(
                method="POST",
                path=path_of("data", "delete"),
                body=given({"tenant": tenant, "label": label, "dry_run": dry_run}),
            ),
            DataDeleted,
        )
        return answer
