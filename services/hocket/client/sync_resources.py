"""What the API can do, without asyncio, made from its description (`make docs`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from hocket.client.requests import ApiRequest, Document, given, new_key, path_of
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
from hocket.schemas.administration.approvals import ApprovalList
from hocket.schemas.administration.backends import BackendList, ModelRateList
from hocket.schemas.administration.budgets import BudgetUses
from hocket.schemas.administration.bulk import (
    BulkFilter,
    BulkOperation,
    BulkOperationList,
    BulkPreview,
    BulkReceipt,
)
from hocket.schemas.administration.comparison import RunComparison
from hocket.schemas.administration.data import DataDeleted
from hocket.schemas.administration.flow import FlowQueue, FlowQueueList, FlowRun, FlowRunList
from hocket.schemas.administration.platform_parts import (
    PartitionList,
    QueueList,
    Tenant,
    TenantList,
    Worker,
    WorkerList,
)
from hocket.schemas.administration.releases import CanaryReport, PipelineDiff, PipelineRelease
from hocket.schemas.administration.run_logs import RunLine, RunLogs
from hocket.schemas.administration.schedules import (
    Firing,
    FiringList,
    NextTimes,
    Schedule,
    ScheduledTask,
    ScheduleList,
)
from hocket.schemas.administration.webhooks import (
    Delivery,
    DeliveryDetail,
    DeliveryList,
    Redelivered,
    Webhook,
    WebhookList,
    WebhookMade,
)
from hocket.schemas.rest import (
    CacheSavings,
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
    PipelineApplied,
    PipelineCosts,
    PipelineDetail,
    PipelineList,
    PipelineValid,
    Redriven,
    RunCost,
    RunCosts,
    RunDetail,
    RunJournal,
    RunList,
    RunReceipt,
    RunResult,
    RunSubmission,
    RunSummary,
    Sent,
    StepDetail,
    StepList,
    SystemHealth,
)
from hocket.schemas.tracing.content import ContentList
from hocket.schemas.tracing.replies import RunTrace

Send = Callable[[ApiRequest, Any], Any]


class RunsApi:
    """`client.runs`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def compare(self, run_id: str, other: str) -> RunComparison:
        """Compare a run (`a`) with another one (`b`), node by node, and mark the first node that
        differs. Inputs and outputs are compared for keys with `content.read`.
        """
        answer: RunComparison = self._send(
            ApiRequest(
                method="GET",
                path=path_of("runs", run_id, "compare"),
                query={"other": other},
                may_repeat=True,
            ),
            RunComparison,
        )
        return answer

    def submit(
        self,
        pipeline: str,
        *,
        input: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        deadline_ms: float | None = None,
        priority: Literal["interactive", "standard", "batch"] | None = None,
        budget_usd: Decimal | str | float | None = None,
        version: int | None = None,
        labels: Mapping[str, str] | None = None,
        wait_ms: float | None = None,
        traceparent: str | None = None,
    ) -> RunReceipt | RunResult:
        """Submit a task. 202 with the run's id once the broker has stored the task; with `wait_ms`,
        200 with the result where the run ends within that time.
        """
        answer: RunReceipt | RunResult = self._send(
            ApiRequest(
                method="POST",
                path=path_of("runs"),
                headers={"traceparent": traceparent},
                body=given(
                    {
                        "pipeline": pipeline,
                        "input": input,
                        "idempotency_key": idempotency_key or new_key(),
                        "deadline_ms": deadline_ms,
                        "class": priority,
                        "budget_usd": budget_usd,
                        "version": version,
                        "labels": labels,
                        "wait_ms": wait_ms,
                    }
                ),
                may_repeat=True,
                wait_ms=wait_ms or 0,
            ),
            RunReceipt | RunResult,
        )
        return answer

    def list(
        self,
        *,
        pipeline: str | None = None,
        status: Literal[
            "running", "succeeded", "degraded", "failed", "cancelled", "expired", "rejected"
        ]
        | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        labels: Mapping[str, str] | None = None,
        error_code: str | None = None,
        deadline_missed: bool | None = None,
        min_cost_usd: Decimal | str | None = None,
        contains: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> RunList:
        """List runs, the latest first. With `contains`, a page looks into the latest 2,000 of those
        that fit otherwise, with `deadline_missed` or `min_cost_usd` into 20,000; `next` goes on
        behind them.
        """
        answer: RunList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("runs"),
                query={
                    "pipeline": pipeline,
                    "status": status,
                    "since": since,
                    "until": until,
                    "labels": labels,
                    "error_code": error_code,
                    "deadline_missed": deadline_missed,
                    "min_cost_usd": min_cost_usd,
                    "contains": contains,
                    "after": after,
                    "limit": limit,
                },
                may_repeat=True,
            ),
            RunList,
        )
        return answer

    def each(
        self,
        *,
        pipeline: str | None = None,
        status: Literal[
            "running", "succeeded", "degraded", "failed", "cancelled", "expired", "rejected"
        ]
        | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        labels: Mapping[str, str] | None = None,
        error_code: str | None = None,
        deadline_missed: bool | None = None,
        min_cost_usd: Decimal | str | None = None,
        contains: str | None = None,
        limit: int | None = None,
    ) -> Iterator[RunSummary]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(
                pipeline=pipeline,
                status=status,
                since=since,
                until=until,
                labels=labels,
                error_code=error_code,
                deadline_missed=deadline_missed,
                min_cost_usd=min_cost_usd,
                contains=contains,
                limit=limit,
                after=after,
            )
            yield from page.runs
            if (after := page.next) is None:
                return

    def get(self, run_id: str) -> RunDetail:
        """Show a run with its input and its output or error."""
        answer: RunDetail = self._send(
            ApiRequest(method="GET", path=path_of("runs", run_id), may_repeat=True), RunDetail
        )
        return answer

    def journal(self, run_id: str) -> RunJournal:
        """Show what handlers of a run's steps have done so far (`context.step` and the like), until a
        quarter of an hour after the run's end.
        """
        answer: RunJournal = self._send(
            ApiRequest(method="GET", path=path_of("runs", run_id, "journal"), may_repeat=True),
            RunJournal,
        )
        return answer

    def cost(self, run_id: str) -> RunCost:
        """Show what a run cost so far, by node, model and backend."""
        answer: RunCost = self._send(
            ApiRequest(method="GET", path=path_of("runs", run_id, "cost"), may_repeat=True), RunCost
        )
        return answer

    def cancel(self, run_id: str, *, reason: str | None = None) -> Sent:
        """Ask for a run's end. 202: its coordinator acts on it in order."""
        answer: Sent = self._send(
            ApiRequest(
                method="POST",
                path=path_of("runs", run_id, "cancel"),
                body=given({"reason": reason}),
                may_repeat=True,
            ),
            Sent,
        )
        return answer

    def signal(
        self, run_id: str, name: str, *, payload: Any | None = None, signal_id: str | None = None
    ) -> Sent:
        """Hand an event to a run: the answer to an approval, or what a `signal` node waits for."""
        answer: Sent = self._send(
            ApiRequest(
                method="POST",
                path=path_of("runs", run_id, "signals"),
                body=given({"name": name, "payload": payload, "signal_id": signal_id}),
            ),
            Sent,
        )
        return answer

    def retry(
        self,
        run_id: str,
        *,
        idempotency_key: str | None = None,
        deadline_ms: float | None = None,
        priority: Literal["interactive", "standard", "batch"] | None = None,
        budget_usd: Decimal | str | float | None = None,
        wait_ms: float | None = None,
        traceparent: str | None = None,
    ) -> RunReceipt | RunResult:
        """Run again what failed in a run that ended, as a new run of the same version that takes over
        all that succeeded. The same request twice is one run.
        """
        answer: RunReceipt | RunResult = self._send(
            ApiRequest(
                method="POST",
                path=path_of("runs", run_id, "retry"),
                headers={"traceparent": traceparent},
                body=given(
                    {
                        "idempotency_key": idempotency_key,
                        "deadline_ms": deadline_ms,
                        "class": priority,
                        "budget_usd": budget_usd,
                        "wait_ms": wait_ms,
                    }
                ),
                may_repeat=True,
                wait_ms=wait_ms or 0,
            ),
            RunReceipt | RunResult,
        )
        return answer

    def rerun(
        self,
        run_id: str,
        *,
        idempotency_key: str | None = None,
        deadline_ms: float | None = None,
        priority: Literal["interactive", "standard", "batch"] | None = None,
        budget_usd: Decimal | str | float | None = None,
        wait_ms: float | None = None,
        from_step: str | None = None,
        step_input: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
        version: int | None = None,
        traceparent: str | None = None,
    ) -> RunReceipt | RunResult:
        """Run again from a step, with another input or as another version, as a new run that takes
        over what would be done the same again. The same request twice is one run.
        """
        answer: RunReceipt | RunResult = self._send(
            ApiRequest(
                method="POST",
                path=path_of("runs", run_id, "rerun"),
                headers={"traceparent": traceparent},
                body=given(
                    {
                        "idempotency_key": idempotency_key,
                        "deadline_ms": deadline_ms,
                        "class": priority,
                        "budget_usd": budget_usd,
                        "wait_ms": wait_ms,
                        "from_step": from_step,
                        "step_input": step_input,
                        "input": input,
                        "version": version,
                    }
                ),
                may_repeat=True,
                wait_ms=wait_ms or 0,
            ),
            RunReceipt | RunResult,
        )
        return answer

    def trace(self, run_id: str) -> RunTrace:
        """Show the trace of a run: steps, waits, attempts and model calls, those of sub-runs too. No
        prompt and no answer stands in it.
        """
        answer: RunTrace = self._send(
            ApiRequest(method="GET", path=path_of("runs", run_id, "trace"), may_repeat=True),
            RunTrace,
        )
        return answer


class StepsApi:
    """`client.steps`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(
        self,
        run_id: str,
        *,
        values: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> StepList:
        """List the steps of a run with their times, deadlines, slack and failed attempts."""
        answer: StepList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("runs", run_id, "steps"),
                query={"values": values, "after": after, "limit": limit},
                may_repeat=True,
            ),
            StepList,
        )
        return answer

    def each(
        self, run_id: str, *, values: bool | None = None, limit: int | None = None
    ) -> Iterator[StepDetail]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(run_id, values=values, limit=limit, after=after)
            yield from page.steps
            if (after := page.next) is None:
                return


class LogsApi:
    """`client.logs`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(
        self,
        run_id: str,
        *,
        step: str | None = None,
        level: Literal["debug", "info", "warning", "error", "critical"] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> RunLogs:
        """Show what the handlers of a run's steps logged, the earliest line first, also while it goes
        on. Without `content.read` the lines come without their texts and fields.
        """
        answer: RunLogs = self._send(
            ApiRequest(
                method="GET",
                path=path_of("runs", run_id, "logs"),
                query={"step": step, "level": level, "after": after, "limit": limit},
                may_repeat=True,
            ),
            RunLogs,
        )
        return answer

    def each(
        self,
        run_id: str,
        *,
        step: str | None = None,
        level: Literal["debug", "info", "warning", "error", "critical"] | None = None,
        limit: int | None = None,
    ) -> Iterator[RunLine]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(run_id, step=step, level=level, limit=limit, after=after)
            yield from page.lines
            if (after := page.next) is None:
                return


class PipelinesApi:
    """`client.pipelines`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def apply(self, document: Document) -> PipelineApplied:
        """Apply a pipeline: a spec that differs from the latest version becomes the next version
        (201), the same spec is the same version (200).
        """
        answer: PipelineApplied = self._send(
            ApiRequest(method="POST", path=path_of("pipelines"), body=document, may_repeat=True),
            PipelineApplied,
        )
        return answer

    def list(
        self, *, after: str | None = None, limit: int | None = None, archived: bool | None = None
    ) -> PipelineList:
        """List the latest version of each pipeline by name; `after` is the last name of the page
        before. Archived ones are listed by themselves.
        """
        answer: PipelineList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("pipelines"),
                query={"after": after, "limit": limit, "archived": archived},
                may_repeat=True,
            ),
            PipelineList,
        )
        return answer

    def validate(self, document: Document) -> PipelineValid:
        """Check a pipeline as `POST /v1/pipelines` does, and keep nothing."""
        answer: PipelineValid = self._send(
            ApiRequest(
                method="POST", path=path_of("pipelines", "validate"), body=document, may_repeat=True
            ),
            PipelineValid,
        )
        return answer

    def get(self, name: str, *, version: int | None = None) -> PipelineDetail:
        """Show one version of a pipeline with its spec; the latest where none is named."""
        answer: PipelineDetail = self._send(
            ApiRequest(
                method="GET",
                path=path_of("pipelines", name),
                query={"version": version},
                may_repeat=True,
            ),
            PipelineDetail,
        )
        return answer

    def delete(self, name: str, *, if_match: int | str | None = None) -> None:
        """Delete an archived pipeline with all its versions, where no run of it is stored."""
        self._send(
            ApiRequest(
                method="DELETE", path=path_of("pipelines", name), headers={"if-match": if_match}
            ),
            None,
        )

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a pipeline, for editors."""
        answer: dict[str, Any] = self._send(
            ApiRequest(method="GET", path=path_of("schemas", "pipeline"), may_repeat=True),
            dict[str, Any],
        )
        return answer

    def diff(self, name: str, before: int, *, after: int | None = None) -> PipelineDiff:
        """Show in what two versions of a pipeline differ, field by field; at most 1,000 places."""
        answer: PipelineDiff = self._send(
            ApiRequest(
                method="GET",
                path=path_of("pipelines", name, "diff"),
                query={"before": before, "after": after},
                may_repeat=True,
            ),
            PipelineDiff,
        )
        return answer

    def release(self, name: str) -> PipelineRelease:
        """Show which version runs take that name none, and the canary, if there is one."""
        answer: PipelineRelease = self._send(
            ApiRequest(method="GET", path=path_of("pipelines", name, "release"), may_repeat=True),
            PipelineRelease,
        )
        return answer

    def activate(
        self, name: str, *, version: int | None = None, if_match: int | str | None = None
    ) -> PipelineRelease:
        """Let runs that name no version take this one, from the next second on; versions that are
        applied later wait until they are activated. Without a version, the newest is active, as at
        first. It ends a canary. Runs that are under way go on with their version.
        """
        answer: PipelineRelease = self._send(
            ApiRequest(
                method="POST",
                path=path_of("pipelines", name, "activate"),
                headers={"if-match": if_match},
                body=given({"version": version}),
            ),
            PipelineRelease,
        )
        return answer

    def roll_back(self, name: str, *, if_match: int | str | None = None) -> PipelineRelease:
        """Activate the version that was active before, otherwise the one before the active one. It
        ends a canary.
        """
        answer: PipelineRelease = self._send(
            ApiRequest(
                method="POST",
                path=path_of("pipelines", name, "rollback"),
                headers={"if-match": if_match},
            ),
            PipelineRelease,
        )
        return answer

    def canary(self, name: str) -> CanaryReport:
        """Show how the runs of a canary ended, beside those of the active version."""
        answer: CanaryReport = self._send(
            ApiRequest(method="GET", path=path_of("pipelines", name, "canary"), may_repeat=True),
            CanaryReport,
        )
        return answer

    def put_canary(
        self,
        name: str,
        version: int,
        share: float,
        *,
        min_runs: int | None = None,
        max_failure_rise: float | None = None,
        only_by_hand: bool | None = None,
        if_match: int | str | None = None,
    ) -> PipelineRelease:
        """Let a share of the runs that name no version take this one, and judge it by how they end: it
        is ended by itself where more of them fail. The other runs go on with the active version.
        Activate it to let all runs take it.
        """
        answer: PipelineRelease = self._send(
            ApiRequest(
                method="PUT",
                path=path_of("pipelines", name, "canary"),
                headers={"if-match": if_match},
                body=given(
                    {
                        "version": version,
                        "share": share,
                        "min_runs": min_runs,
                        "max_failure_rise": max_failure_rise,
                        "only_by_hand": only_by_hand,
                    }
                ),
            ),
            PipelineRelease,
        )
        return answer

    def end_canary(self, name: str, *, if_match: int | str | None = None) -> PipelineRelease:
        """End a canary: all runs take the active version."""
        answer: PipelineRelease = self._send(
            ApiRequest(
                method="DELETE",
                path=path_of("pipelines", name, "canary"),
                headers={"if-match": if_match},
            ),
            PipelineRelease,
        )
        return answer

    def archive(self, name: str, *, if_match: int | str | None = None) -> PipelineRelease:
        """Let a pipeline take no new runs, and leave it out of lists. Runs that are under way go on."""
        answer: PipelineRelease = self._send(
            ApiRequest(
                method="POST",
                path=path_of("pipelines", name, "archive"),
                headers={"if-match": if_match},
            ),
            PipelineRelease,
        )
        return answer

    def unarchive(self, name: str, *, if_match: int | str | None = None) -> PipelineRelease:
        """Let an archived pipeline take new runs again."""
        answer: PipelineRelease = self._send(
            ApiRequest(
                method="POST",
                path=path_of("pipelines", name, "unarchive"),
                headers={"if-match": if_match},
            ),
            PipelineRelease,
        )
        return answer


class ApprovalsApi:
    """`client.approvals`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self, *, run: str | None = None) -> ApprovalList:
        """List the approvals that runs wait for, the one that waits longest first: the first 200, or
        those of one `run`.
        """
        answer: ApprovalList = self._send(
            ApiRequest(
                method="GET", path=path_of("approvals"), query={"run": run}, may_repeat=True
            ),
            ApprovalList,
        )
        return answer


class FlowApi:
    """`client.flow`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(
        self, *, pipeline: str | None = None, after: str | None = None, limit: int | None = None
    ) -> FlowQueueList:
        """List the limits at which runs stand, by key, those first at which most wait."""
        answer: FlowQueueList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("flow"),
                query={"pipeline": pipeline, "after": after, "limit": limit},
                may_repeat=True,
            ),
            FlowQueueList,
        )
        return answer

    def each(self, *, pipeline: str | None = None, limit: int | None = None) -> Iterator[FlowQueue]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(pipeline=pipeline, limit=limit, after=after)
            yield from page.queues
            if (after := page.next) is None:
                return

    def runs(
        self,
        *,
        pipeline: str | None = None,
        queue: str | None = None,
        run: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> FlowRunList:
        """List the runs that hold places or wait for one, each with its position, by queue or run."""
        answer: FlowRunList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("flow", "runs"),
                query={
                    "pipeline": pipeline,
                    "queue": queue,
                    "run": run,
                    "after": after,
                    "limit": limit,
                },
                may_repeat=True,
            ),
            FlowRunList,
        )
        return answer

    def each_run(
        self,
        *,
        pipeline: str | None = None,
        queue: str | None = None,
        run: str | None = None,
        limit: int | None = None,
    ) -> Iterator[FlowRun]:
        """Yield what `runs` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.runs(pipeline=pipeline, queue=queue, run=run, limit=limit, after=after)
            yield from page.runs
            if (after := page.next) is None:
                return


class BulkApi:
    """`client.bulk`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def submit(self, runs: Sequence[RunSubmission | Mapping[str, Any]]) -> BulkReceipt:
        """Submit up to 1,000 tasks. 202 once the broker has stored those that are taken; each of the
        others has its error.
        """
        answer: BulkReceipt = self._send(
            ApiRequest(method="POST", path=path_of("bulk", "runs"), body=given({"runs": runs})),
            BulkReceipt,
        )
        return answer

    def preview(
        self,
        action: Literal["cancel", "retry"],
        *,
        filter: BulkFilter | Mapping[str, Any] | None = None,
        reason: str | None = None,
        at_most: int | None = None,
        idempotency_key: str | None = None,
    ) -> BulkPreview:
        """Count the runs that an operation would change, and change nothing."""
        answer: BulkPreview = self._send(
            ApiRequest(
                method="POST",
                path=path_of("bulk", "preview"),
                body=given(
                    {
                        "action": action,
                        "filter": filter,
                        "reason": reason,
                        "at_most": at_most,
                        "idempotency_key": idempotency_key,
                    }
                ),
                may_repeat=True,
            ),
            BulkPreview,
        )
        return answer

    def begin(
        self,
        action: Literal["cancel", "retry"],
        *,
        filter: BulkFilter | Mapping[str, Any] | None = None,
        reason: str | None = None,
        at_most: int | None = None,
        idempotency_key: str | None = None,
    ) -> BulkOperation:
        """Cancel or retry all runs that a filter means, in the background: those that were accepted
        until now. It goes on where the process that works on it is stopped.
        """
        answer: BulkOperation = self._send(
            ApiRequest(
                method="POST",
                path=path_of("bulk", "operations"),
                body=given(
                    {
                        "action": action,
                        "filter": filter,
                        "reason": reason,
                        "at_most": at_most,
                        "idempotency_key": idempotency_key,
                    }
                ),
            ),
            BulkOperation,
        )
        return answer

    def list(self, *, after: str | None = None, limit: int | None = None) -> BulkOperationList:
        """List bulk operations, the latest first."""
        answer: BulkOperationList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("bulk", "operations"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            BulkOperationList,
        )
        return answer

    def each(self, *, limit: int | None = None) -> Iterator[BulkOperation]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(limit=limit, after=after)
            yield from page.operations
            if (after := page.next) is None:
                return

    def get(self, operation_id: str) -> BulkOperation:
        """Show how far a bulk operation is."""
        answer: BulkOperation = self._send(
            ApiRequest(
                method="GET", path=path_of("bulk", "operations", operation_id), may_repeat=True
            ),
            BulkOperation,
        )
        return answer

    def stop(self, operation_id: str) -> BulkOperation:
        """Stop a bulk operation where it is. What it has changed stays so."""
        answer: BulkOperation = self._send(
            ApiRequest(method="POST", path=path_of("bulk", "operations", operation_id, "stop")),
            BulkOperation,
        )
        return answer


class SchedulesApi:
    """`client.schedules`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(
        self,
        *,
        pipeline: str | None = None,
        paused: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> ScheduleList:
        """List schedules, the latest first, each with its next time."""
        answer: ScheduleList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("schedules"),
                query={"pipeline": pipeline, "paused": paused, "after": after, "limit": limit},
                may_repeat=True,
            ),
            ScheduleList,
        )
        return answer

    def each(
        self, *, pipeline: str | None = None, paused: bool | None = None, limit: int | None = None
    ) -> Iterator[Schedule]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(pipeline=pipeline, paused=paused, limit=limit, after=after)
            yield from page.schedules
            if (after := page.next) is None:
                return

    def preview(
        self,
        cron: str,
        *,
        time_zone: str | None = None,
        jitter_s: float | None = None,
        count: int | None = None,
    ) -> NextTimes:
        """Show the coming times of a cron expression, and keep nothing."""
        answer: NextTimes = self._send(
            ApiRequest(
                method="POST",
                path=path_of("schedule-preview"),
                query={"count": count},
                body=given({"cron": cron, "time_zone": time_zone, "jitter_s": jitter_s}),
                may_repeat=True,
            ),
            NextTimes,
        )
        return answer

    def put(
        self,
        name: str,
        cron: str,
        task: ScheduledTask | Mapping[str, Any],
        *,
        time_zone: str | None = None,
        jitter_s: float | None = None,
        time_field: str | None = None,
        catch_up: Literal["none", "one", "all"] | None = None,
        catch_up_window_s: float | None = None,
        overlap: Literal["allow", "skip", "cancel_running", "buffer_one"] | None = None,
        description: str | None = None,
        paused: bool | None = None,
        if_match: int | str | None = None,
        if_none_match: str | None = None,
    ) -> Schedule:
        """Make a schedule (201), or replace it. Its task is checked as it will be when it is
        submitted.
        """
        answer: Schedule = self._send(
            ApiRequest(
                method="PUT",
                path=path_of("schedules", name),
                headers={"if-match": if_match, "if-none-match": if_none_match},
                body=given(
                    {
                        "cron": cron,
                        "time_zone": time_zone,
                        "jitter_s": jitter_s,
                        "task": task,
                        "time_field": time_field,
                        "catch_up": catch_up,
                        "catch_up_window_s": catch_up_window_s,
                        "overlap": overlap,
                        "description": description,
                        "paused": paused,
                    }
                ),
            ),
            Schedule,
        )
        return answer

    def get(self, name: str) -> Schedule:
        """Show a schedule."""
        answer: Schedule = self._send(
            ApiRequest(method="GET", path=path_of("schedules", name), may_repeat=True), Schedule
        )
        return answer

    def delete(self, name: str, *, if_match: int | str | None = None) -> None:
        """Delete a schedule with what became of its times. Its runs stay."""
        self._send(
            ApiRequest(
                method="DELETE", path=path_of("schedules", name), headers={"if-match": if_match}
            ),
            None,
        )

    def pause(
        self, name: str, *, reason: str | None = None, if_match: int | str | None = None
    ) -> Schedule:
        """Pause a schedule. Times that come meanwhile are left out."""
        answer: Schedule = self._send(
            ApiRequest(
                method="POST",
                path=path_of("schedules", name, "pause"),
                headers={"if-match": if_match},
                body=given({"reason": reason}),
            ),
            Schedule,
        )
        return answer

    def resume(self, name: str, *, if_match: int | str | None = None) -> Schedule:
        """Let a paused schedule go on, with its next time from now."""
        answer: Schedule = self._send(
            ApiRequest(
                method="POST",
                path=path_of("schedules", name, "resume"),
                headers={"if-match": if_match},
            ),
            Schedule,
        )
        return answer

    def trigger(self, name: str, *, idempotency_key: str | None = None) -> Firing:
        """Submit the task of a schedule now, be it paused or not; its policy of overlaps holds."""
        answer: Firing = self._send(
            ApiRequest(
                method="POST",
                path=path_of("schedules", name, "trigger"),
                body=given({"idempotency_key": idempotency_key}),
            ),
            Firing,
        )
        return answer

    def next_times(self, name: str, *, count: int | None = None) -> NextTimes:
        """Show the coming times of a schedule, as they are where it is not paused."""
        answer: NextTimes = self._send(
            ApiRequest(
                method="GET",
                path=path_of("schedules", name, "next"),
                query={"count": count},
                may_repeat=True,
            ),
            NextTimes,
        )
        return answer

    def firings(
        self, name: str, *, after: str | None = None, limit: int | None = None
    ) -> FiringList:
        """List what became of the times of a schedule, the latest first; of the last 1,000."""
        answer: FiringList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("schedules", name, "firings"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            FiringList,
        )
        return answer

    def each_firing(self, name: str, *, limit: int | None = None) -> Iterator[Firing]:
        """Yield what `firings` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.firings(name, limit=limit, after=after)
            yield from page.firings
            if (after := page.next) is None:
                return


class WebhooksApi:
    """`client.webhooks`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self, *, after: str | None = None, limit: int | None = None) -> WebhookList:
        """List webhooks, the latest first."""
        answer: WebhookList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("webhooks"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            WebhookList,
        )
        return answer

    def each(self, *, limit: int | None = None) -> Iterator[Webhook]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.list(limit=limit, after=after)
            yield from page.webhooks
            if (after := page.next) is None:
                return

    def put(
        self,
        name: str,
        url: str,
        *,
        events: Sequence[
            Literal[
                "run.succeeded",
                "run.degraded",
                "run.failed",
                "run.expired",
                "run.cancelled",
                "run.waiting",
            ]
        ]
        | None = None,
        pipelines: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        content: bool | None = None,
        description: str | None = None,
        enabled: bool | None = None,
        if_match: int | str | None = None,
        if_none_match: str | None = None,
    ) -> WebhookMade:
        """Make a webhook (201, with its secret, which is shown only now), or replace it. It is told of
        what happens from then on.
        """
        answer: WebhookMade = self._send(
            ApiRequest(
                method="PUT",
                path=path_of("webhooks", name),
                headers={"if-match": if_match, "if-none-match": if_none_match},
                body=given(
                    {
                        "url": url,
                        "events": events,
                        "pipelines": pipelines,
                        "labels": labels,
                        "content": content,
                        "description": description,
                        "enabled": enabled,
                    }
                ),
            ),
            WebhookMade,
        )
        return answer

    def get(self, name: str) -> Webhook:
        """Show a webhook."""
        answer: Webhook = self._send(
            ApiRequest(method="GET", path=path_of("webhooks", name), may_repeat=True), Webhook
        )
        return answer

    def delete(self, name: str, *, if_match: int | str | None = None) -> None:
        """Delete a webhook with its deliveries; what is not delivered is not told."""
        self._send(
            ApiRequest(
                method="DELETE", path=path_of("webhooks", name), headers={"if-match": if_match}
            ),
            None,
        )

    def enable(self, name: str, *, if_match: int | str | None = None) -> Webhook:
        """Enable a webhook. What waited goes out; it is told of what happens from now on."""
        answer: Webhook = self._send(
            ApiRequest(
                method="POST",
                path=path_of("webhooks", name, "enable"),
                headers={"if-match": if_match},
            ),
            Webhook,
        )
        return answer

    def disable(self, name: str, *, if_match: int | str | None = None) -> Webhook:
        """Disable a webhook: nothing is sent, and nothing that happens is kept for it."""
        answer: Webhook = self._send(
            ApiRequest(
                method="POST",
                path=path_of("webhooks", name, "disable"),
                headers={"if-match": if_match},
            ),
            Webhook,
        )
        return answer

    def rotate_secret(self, name: str, *, overlap_s: float | None = None) -> WebhookMade:
        """Give a webhook another secret, which is shown only now. The former one signs as well for
        `overlap_s`.
        """
        answer: WebhookMade = self._send(
            ApiRequest(
                method="POST",
                path=path_of("webhooks", name, "rotate"),
                body=given({"overlap_s": overlap_s}),
            ),
            WebhookMade,
        )
        return answer

    def test(self, name: str) -> Delivery:
        """Send a message of type `webhook.test`."""
        answer: Delivery = self._send(
            ApiRequest(method="POST", path=path_of("webhooks", name, "test")), Delivery
        )
        return answer

    def redeliver_dead(
        self, name: str, since: datetime, *, until: datetime | None = None
    ) -> Redelivered:
        """Send again what is dead of some time, the earliest first, up to 1,000 messages."""
        answer: Redelivered = self._send(
            ApiRequest(
                method="POST",
                path=path_of("webhooks", name, "redeliver"),
                body=given({"since": since, "until": until}),
            ),
            Redelivered,
        )
        return answer

    def deliveries(
        self,
        name: str,
        *,
        state: Literal["pending", "delivered", "dead"] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> DeliveryList:
        """List a webhook's deliveries of the last 14 days, the latest first; `state=dead`: those that
        were given up.
        """
        answer: DeliveryList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("webhooks", name, "deliveries"),
                query={"state": state, "after": after, "limit": limit},
                may_repeat=True,
            ),
            DeliveryList,
        )
        return answer

    def each_delivery(
        self,
        name: str,
        *,
        state: Literal["pending", "delivered", "dead"] | None = None,
        limit: int | None = None,
    ) -> Iterator[Delivery]:
        """Yield what `deliveries` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = self.deliveries(name, state=state, limit=limit, after=after)
            yield from page.deliveries
            if (after := page.next) is None:
                return

    def delivery(self, name: str, message_id: str) -> DeliveryDetail:
        """Show a delivery with what is sent."""
        answer: DeliveryDetail = self._send(
            ApiRequest(
                method="GET",
                path=path_of("webhooks", name, "deliveries", message_id),
                may_repeat=True,
            ),
            DeliveryDetail,
        )
        return answer

    def redeliver(self, name: str, message_id: str) -> Delivery:
        """Send a message again, under the same id, delivered or not."""
        answer: Delivery = self._send(
            ApiRequest(
                method="POST", path=path_of("webhooks", name, "deliveries", message_id, "redeliver")
            ),
            Delivery,
        )
        return answer


class NodeTypesApi:
    """`client.types`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self, *, after: str | None = None, limit: int | None = None) -> NodeTypeList:
        """List the node types that workers run, or ran, with their queues; `after` is `next` of the
        page before.
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
        """Hand out no more steps of a node type, or of a queue of it, for a time: an hour by default,
        at most a week. Steps that workers have go on, others wait, and their deadlines with them.
        Only with a key of all tenants.
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
        """Hand out the steps of a drained node type, or of a queue of it, again. Only with a key of
        all tenants.
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
        """Cost by pipeline and day; the last 30 days where none are named."""
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
        """What is spent of the budgets of the configuration in their present hour, day or month (UTC):
        of those that hold for the tenant's calls. A budget that is named for every tenant is shown
        to keys of one tenant once it has spent something of it.
        """
        answer: BudgetUses = self._send(
            ApiRequest(method="GET", path=path_of("costs", "budgets"), may_repeat=True), BudgetUses
        )
        return answer

    def saved_by_cache(
        self, *, pipeline: str | None = None, from_: str | None = None, to: str | None = None
    ) -> CacheSavings:
        """What steps served from the cache would have cost, by node and day."""
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
        """Cost by node, day and kind: calls, attempts made again, branches that lost their race."""
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
        """Cost by pipeline version, node, model and backend over all time."""
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
        """Cost by run, the dearest first; the last 30 days where no time is named."""
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

    def list(self, run: str, *, limit: int | None = None) -> CallList:
        """List the calls of a run, the earliest first, each attempt by itself, with its decision."""
        answer: CallList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("calls"),
                query={"run": run, "limit": limit},
                may_repeat=True,
            ),
            CallList,
        )
        return answer

    def explain(self, call_id: str) -> CallExplained:
        """Show every attempt of a call: the replicas that were looked at, why one was chosen, what
        became of it; or why nobody was asked.
        """
        answer: CallExplained = self._send(
            ApiRequest(method="GET", path=path_of("calls", call_id), may_repeat=True), CallExplained
        )
        return answer


class ContentApi:
    """`client.content`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self, run: str, *, limit: int | None = None) -> ContentList:
        """List the prompts and answers of a run's calls, as far as they are kept: whether, and how,
        the section `content:` of the gateway's configuration says.
        """
        answer: ContentList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("content"),
                query={"run": run, "limit": limit},
                may_repeat=True,
            ),
            ContentList,
        )
        return answer


class ExperimentsApi:
    """`client.experiments`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list(self) -> ExperimentList:
        """List the tenant's experiments and those of all tenants, their arms, and what was seen of
        each lately.
        """
        answer: ExperimentList = self._send(
            ApiRequest(method="GET", path=path_of("experiments"), may_repeat=True), ExperimentList
        )
        return answer

    def roll_back(self, experiment: str, arm: str) -> ExperimentList:
        """Switch an arm off: its runs go to the control."""
        answer: ExperimentList = self._send(
            ApiRequest(
                method="POST", path=path_of("experiments", experiment, "arms", arm, "rollback")
            ),
            ExperimentList,
        )
        return answer

    def restore(self, experiment: str, arm: str) -> ExperimentList:
        """Switch an arm on again, and forget what was seen of it."""
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
        """List the replicas of all backends, as every gateway sees them."""
        answer: BackendList = self._send(
            ApiRequest(method="GET", path=path_of("backends"), may_repeat=True), BackendList
        )
        return answer

    def drain(
        self, backend: str, *, replica: str | None = None, reason: str | None = None
    ) -> BackendList:
        """Send a backend no more calls; those that it has end. Calls go to other replicas and
        fallbacks, and wait where there is none. It holds until it is resumed, also for gateways
        that start later.
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
        """Send a drained backend calls again."""
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
        """Start a backend's replicas now, and keep them ready for a time: those that gateways start
        and stop (`warm:` in the configuration).
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
        """Close the breakers of a backend at all gateways, and end the rest that it asked for."""
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
        """List what was used, within the last minute, of the rates of tenants and models: those of the
        caller's tenant, and those of all tenants together; keys of all tenants see each.
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
        unattributed: bool | None = None,
    ) -> DeadLetterList:
        """List the tenant's dead letters, the latest first, with the beginning of each payload."""
        answer: DeadLetterList = self._send(
            ApiRequest(
                method="GET",
                path=path_of("dead-letters"),
                query={"limit": limit, "source": source, "unattributed": unattributed},
                may_repeat=True,
            ),
            DeadLetterList,
        )
        return answer

    def get(self, seq: int, *, unattributed: bool | None = None) -> DeadLetter:
        """Show one dead letter with its whole payload and headers."""
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
        """Remove a dead letter for good."""
        self._send(
            ApiRequest(
                method="DELETE",
                path=path_of("dead-letters", seq),
                query={"unattributed": unattributed},
            ),
            None,
        )

    def redrive(self, seq: int, *, unattributed: bool | None = None) -> Redriven:
        """Publish a dead letter again on its own subject, then remove it here. A step whose run has
        gone on without it is refused (409): retry the run. A usage record is booked then, whoever
        wrote it.
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
        """Make a key for the request's tenant, and return its text, which is shown only now. It may do
        no more than the key of the request.
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
        """List keys, the latest first. No secret is among what is shown."""
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
        """Show the key that the request came with, and what it may do."""
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
        """Revoke a key, for good: within seconds no door takes it, and what it has open ends."""
        answer: KeyDetail = self._send(
            ApiRequest(method="DELETE", path=path_of("keys", key_id)), KeyDetail
        )
        return answer

    def rotate(self, key_id: str, *, overlap_s: float | None = None) -> KeyMade:
        """Give a key another secret, and return its text, which is shown only now. The former one
        counts for `overlap_s` more.
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
        """List the roles with their permissions."""
        answer: RoleList = self._send(
            ApiRequest(method="GET", path=path_of("roles"), may_repeat=True), RoleList
        )
        return answer


class GrantsApi:
    """`client.grants`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def get(self) -> Grants:
        """Show what the pipelines of the request's tenant may use. A list that is `null` restricts
        nothing.
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
        Only with a key of all tenants: nobody widens the grants of his own tenant.
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
        """List what was changed, the earliest first: in the key's tenant, or everywhere where the key
        is of all tenants.
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

    def verify(self, *, head: str | None = None) -> AuditVerdict:
        """Read the whole audit, and tell whether each row follows the one before it. Only with a key
        of all tenants.
        """
        answer: AuditVerdict = self._send(
            ApiRequest(
                method="GET",
                path=path_of("audit", "verdict"),
                query={"head": head},
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
        """Show the state of the platform's parts as this process sees them."""
        answer: SystemHealth = self._send(
            ApiRequest(method="GET", path=path_of("health"), may_repeat=True), SystemHealth
        )
        return answer

    def tenants(self, *, after: str | None = None, limit: int | None = None) -> TenantList:
        """List the tenants that have runs, pipelines or keys. Only with a key of all tenants."""
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
        """List the workers that announced themselves within the last seconds, with the steps that they
        take. Only with a key of all tenants.
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
        """List the queues of steps with what waits in them, that of all tenants together. Only with a
        key of all tenants.
        """
        answer: QueueList = self._send(
            ApiRequest(method="GET", path=path_of("queues"), may_repeat=True), QueueList
        )
        return answer

    def partitions(self) -> PartitionList:
        """List the partitions of the runs with the coordinators that own them. Only with a key of all
        tenants.
        """
        answer: PartitionList = self._send(
            ApiRequest(method="GET", path=path_of("partitions"), may_repeat=True), PartitionList
        )
        return answer

    def delete_data(
        self, tenant: str, *, label: Mapping[str, str] | None = None, dry_run: bool | None = None
    ) -> DataDeleted:
        """Delete runs with their results, calls and all else of the request's tenant, or what of it
        has a label. Runs in flight must have ended. The audit has what was deleted.
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
