"""What the API can do with runs, for asyncio, made from its description (`make docs`)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from hocket.client.requests import ApiRequest, Document, given, new_key, path_of, with_keys
from hocket.schemas.administration.approvals import Approval, ApprovalList
from hocket.schemas.administration.bulk import (
    BulkFilter,
    BulkOperation,
    BulkOperationList,
    BulkPreview,
    BulkReceipt,
)
from hocket.schemas.administration.comparison import RunComparison
from hocket.schemas.administration.flow import FlowQueue, FlowQueueList, FlowRun, FlowRunList
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
    PipelineApplied,
    PipelineDetail,
    PipelineList,
    PipelineValid,
    RunCost,
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
)
from hocket.schemas.tracing.replies import RunTrace

Send = Callable[[ApiRequest, Any], Awaitable[Any]]


class AsyncRunsApi:
    """`client.runs`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def compare(self, run_id: str, other: str) -> RunComparison:
        """Compare a run (`a`) with another one (`b`) node by node, and mark the first node that
        differs. Inputs and outputs are compared only for keys with `content.read`.
        """
        answer: RunComparison = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("runs", run_id, "compare"),
                query={"other": other},
                may_repeat=True,
            ),
            RunComparison,
        )
        return answer

    async def submit(
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
        """Submit a task. Returns 202 with the run's ID once the broker has stored the task or, with
        `wait_ms`, 200 with the result if the run ends within that time.
        """
        answer: RunReceipt | RunResult = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("runs"),
                headers={"traceparent": traceparent},
                body=given(
                    {
                        "pipeline": pipeline,
                        "input": input,
                        "idempotency_key": new_key()
                        if idempotency_key is None
                        else idempotency_key,
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

    async def list(
        self,
        *,
        after: str | None = None,
        limit: int | None = None,
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
    ) -> RunList:
        """List runs, newest first. With `contains`, a page searches the latest 2,000 runs that match
        the other filters, with `deadline_missed` or `min_cost_usd` the latest 20,000; `next`
        continues after them.
        """
        answer: RunList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("runs"),
                query={
                    "after": after,
                    "limit": limit,
                    "pipeline": pipeline,
                    "status": status,
                    "since": since,
                    "until": until,
                    "labels": labels,
                    "error_code": error_code,
                    "deadline_missed": deadline_missed,
                    "min_cost_usd": min_cost_usd,
                    "contains": contains,
                },
                may_repeat=True,
            ),
            RunList,
        )
        return answer

    async def each(
        self,
        *,
        limit: int | None = None,
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
    ) -> AsyncIterator[RunSummary]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(
                limit=limit,
                pipeline=pipeline,
                status=status,
                since=since,
                until=until,
                labels=labels,
                error_code=error_code,
                deadline_missed=deadline_missed,
                min_cost_usd=min_cost_usd,
                contains=contains,
                after=after,
            )
            for one in page.runs:
                yield one
            if (after := page.next) is None:
                return

    async def get(self, run_id: str) -> RunDetail:
        """Show a run with its input and its output or error."""
        answer: RunDetail = await self._send(
            ApiRequest(method="GET", path=path_of("runs", run_id), may_repeat=True), RunDetail
        )
        return answer

    async def journal(self, run_id: str) -> RunJournal:
        """Show what the handlers of a run's steps have done so far (`context.step` and the like).
        Available until 15 minutes after the run ends.
        """
        answer: RunJournal = await self._send(
            ApiRequest(method="GET", path=path_of("runs", run_id, "journal"), may_repeat=True),
            RunJournal,
        )
        return answer

    async def cost(self, run_id: str) -> RunCost:
        """Show what a run has cost so far, by node, model and backend."""
        answer: RunCost = await self._send(
            ApiRequest(method="GET", path=path_of("runs", run_id, "cost"), may_repeat=True), RunCost
        )
        return answer

    async def cancel(self, run_id: str, *, reason: str | None = None) -> Sent:
        """Request the cancellation of a run. Returns 202; the run's coordinator processes requests in
        order.
        """
        answer: Sent = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("runs", run_id, "cancel"),
                body=given({"reason": reason}),
                may_repeat=True,
                cancels=run_id,
            ),
            Sent,
        )
        return answer

    async def signal(
        self, run_id: str, name: str, *, payload: Any | None = None, signal_id: str | None = None
    ) -> Sent:
        """Send a signal to a run: the answer to an approval, or the event that a `signal` node waits
        for.
        """
        answer: Sent = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("runs", run_id, "signals"),
                body=given({"name": name, "payload": payload, "signal_id": signal_id}),
            ),
            Sent,
        )
        return answer

    async def retry(
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
        """Retry what failed in a run that has ended, as a new run of the same version that reuses
        everything that succeeded. Repeating the same request does not start another run.
        """
        answer: RunReceipt | RunResult = await self._send(
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

    async def rerun(
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
        """Rerun a run from a step, with another input or with another version, as a new run that
        reuses the steps that would do exactly the same. Repeating the same request does not start
        another run.
        """
        answer: RunReceipt | RunResult = await self._send(
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

    async def trace(self, run_id: str) -> RunTrace:
        """Show the trace of a run: steps, waits, attempts and model calls, including those of
        sub-runs. It contains no prompts and no answers.
        """
        answer: RunTrace = await self._send(
            ApiRequest(method="GET", path=path_of("runs", run_id, "trace"), may_repeat=True),
            RunTrace,
        )
        return answer


class AsyncStepsApi:
    """`client.steps`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self,
        run_id: str,
        *,
        values: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> StepList:
        """List the steps of a run with their times, deadlines, slack and failed attempts. A page ends
        early where values or errors are large; `next` continues.
        """
        answer: StepList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("runs", run_id, "steps"),
                query={"values": values, "after": after, "limit": limit},
                may_repeat=True,
            ),
            StepList,
        )
        return answer

    async def each(
        self, run_id: str, *, values: bool | None = None, limit: int | None = None
    ) -> AsyncIterator[StepDetail]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(run_id, values=values, limit=limit, after=after)
            for one in page.steps:
                yield one
            if (after := page.next) is None:
                return


class AsyncLogsApi:
    """`client.logs`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self,
        run_id: str,
        *,
        step: str | None = None,
        level: Literal["debug", "info", "warning", "error", "critical"] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> RunLogs:
        """Show what the handlers of a run's steps logged, oldest line first, including while the run
        is still in progress. Without `content.read`, texts and fields are omitted.
        """
        answer: RunLogs = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("runs", run_id, "logs"),
                query={"step": step, "level": level, "after": after, "limit": limit},
                may_repeat=True,
            ),
            RunLogs,
        )
        return answer

    async def each(
        self,
        run_id: str,
        *,
        step: str | None = None,
        level: Literal["debug", "info", "warning", "error", "critical"] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[RunLine]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(run_id, step=step, level=level, limit=limit, after=after)
            for one in page.lines:
                yield one
            if (after := page.next) is None:
                return


class AsyncPipelinesApi:
    """`client.pipelines`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def apply(self, document: Document) -> PipelineApplied:
        """Apply a pipeline: a spec that differs from the latest version, if only in the order of keys,
        becomes the next version (201); an identical spec returns the latest version (200).
        """
        answer: PipelineApplied = await self._send(
            ApiRequest(method="POST", path=path_of("pipelines"), body=document), PipelineApplied
        )
        return answer

    async def list(
        self, *, after: str | None = None, limit: int | None = None, archived: bool | None = None
    ) -> PipelineList:
        """List the latest version of each pipeline, by name; `after` is the last name of the previous
        page. Archived pipelines are listed separately.
        """
        answer: PipelineList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("pipelines"),
                query={"after": after, "limit": limit, "archived": archived},
                may_repeat=True,
            ),
            PipelineList,
        )
        return answer

    async def validate(self, document: Document) -> PipelineValid:
        """Check a pipeline as `POST /v1/pipelines` does, without storing it."""
        answer: PipelineValid = await self._send(
            ApiRequest(
                method="POST", path=path_of("pipelines", "validate"), body=document, may_repeat=True
            ),
            PipelineValid,
        )
        return answer

    async def get(self, name: str, *, version: int | None = None) -> PipelineDetail:
        """Show one version of a pipeline with its spec; by default, the latest."""
        answer: PipelineDetail = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("pipelines", name),
                query={"version": version},
                may_repeat=True,
            ),
            PipelineDetail,
        )
        return answer

    async def delete(self, name: str, *, if_match: int | str | None = None) -> None:
        """Delete an archived pipeline with all its versions. It must have no stored runs."""
        await self._send(
            ApiRequest(
                method="DELETE", path=path_of("pipelines", name), headers={"if-match": if_match}
            ),
            None,
        )

    async def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a pipeline, for editors."""
        answer: dict[str, Any] = await self._send(
            ApiRequest(method="GET", path=path_of("schemas", "pipeline"), may_repeat=True),
            dict[str, Any],
        )
        return answer

    async def diff(self, name: str, before: int, *, after: int | None = None) -> PipelineDiff:
        """Show the differences between two versions of a pipeline, field by field; at most 1,000
        places. If an object's keys are in another order, it is `changed` with `order`, and the keys
        that both have. The order is not compared with a version that this release cannot read.
        """
        answer: PipelineDiff = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("pipelines", name, "diff"),
                query={"before": before, "after": after},
                may_repeat=True,
            ),
            PipelineDiff,
        )
        return answer

    async def release(self, name: str) -> PipelineRelease:
        """Show which version is used by runs that do not name one, and the canary, if there is one."""
        answer: PipelineRelease = await self._send(
            ApiRequest(method="GET", path=path_of("pipelines", name, "release"), may_repeat=True),
            PipelineRelease,
        )
        return answer

    async def activate(
        self, name: str, *, version: int | None = None, if_match: int | str | None = None
    ) -> PipelineRelease:
        """Activate a version: runs that do not name a version use it once this is answered, and
        versions applied later are not used until they are activated. Without a version, the newest
        is always active, which is the initial state. Ends a canary. Runs in progress keep their
        version.
        """
        answer: PipelineRelease = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("pipelines", name, "activate"),
                headers={"if-match": if_match},
                body=given({"version": version}),
            ),
            PipelineRelease,
        )
        return answer

    async def roll_back(self, name: str, *, if_match: int | str | None = None) -> PipelineRelease:
        """Activate the previously active version or, if there is none, the one before the active one.
        Ends a canary.
        """
        answer: PipelineRelease = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("pipelines", name, "rollback"),
                headers={"if-match": if_match},
            ),
            PipelineRelease,
        )
        return answer

    async def canary(self, name: str) -> CanaryReport:
        """Compare how runs of the canary ended with runs of the active version."""
        answer: CanaryReport = await self._send(
            ApiRequest(method="GET", path=path_of("pipelines", name, "canary"), may_repeat=True),
            CanaryReport,
        )
        return answer

    async def put_canary(
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
        """Start a canary: a share of the runs that do not name a version use this one, and it is
        judged by how they end. It ends automatically if more of them fail. The other runs keep
        using the active version. To make all runs use the canary's version, activate it.
        """
        answer: PipelineRelease = await self._send(
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

    async def end_canary(self, name: str, *, if_match: int | str | None = None) -> PipelineRelease:
        """End a canary: all runs use the active version."""
        answer: PipelineRelease = await self._send(
            ApiRequest(
                method="DELETE",
                path=path_of("pipelines", name, "canary"),
                headers={"if-match": if_match},
            ),
            PipelineRelease,
        )
        return answer

    async def archive(self, name: str, *, if_match: int | str | None = None) -> PipelineRelease:
        """Archive a pipeline: it accepts no new runs and is left out of lists. Runs in progress
        continue.
        """
        answer: PipelineRelease = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("pipelines", name, "archive"),
                headers={"if-match": if_match},
            ),
            PipelineRelease,
        )
        return answer

    async def unarchive(self, name: str, *, if_match: int | str | None = None) -> PipelineRelease:
        """Unarchive a pipeline, so that it accepts new runs again."""
        answer: PipelineRelease = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("pipelines", name, "unarchive"),
                headers={"if-match": if_match},
            ),
            PipelineRelease,
        )
        return answer


class AsyncApprovalsApi:
    """`client.approvals`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self,
        *,
        run: str | None = None,
        pipeline: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> ApprovalList:
        """List pending approvals, longest-waiting first: all, or those of one `run` or `pipeline`."""
        answer: ApprovalList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("approvals"),
                query={"run": run, "pipeline": pipeline, "after": after, "limit": limit},
                may_repeat=True,
            ),
            ApprovalList,
        )
        return answer

    async def each(
        self, *, run: str | None = None, pipeline: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Approval]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(run=run, pipeline=pipeline, limit=limit, after=after)
            for one in page.approvals:
                yield one
            if (after := page.next) is None:
                return


class AsyncFlowApi:
    """`client.flow`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self, *, pipeline: str | None = None, after: str | None = None, limit: int | None = None
    ) -> FlowQueueList:
        """List the per-key limits that runs hold or wait for, those with the most waiting runs first."""
        answer: FlowQueueList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("flow"),
                query={"pipeline": pipeline, "after": after, "limit": limit},
                may_repeat=True,
            ),
            FlowQueueList,
        )
        return answer

    async def each(
        self, *, pipeline: str | None = None, limit: int | None = None
    ) -> AsyncIterator[FlowQueue]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(pipeline=pipeline, limit=limit, after=after)
            for one in page.queues:
                yield one
            if (after := page.next) is None:
                return

    async def runs(
        self,
        *,
        pipeline: str | None = None,
        queue: str | None = None,
        run: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> FlowRunList:
        """List runs that hold or wait for a slot, each with its position, by queue or run."""
        answer: FlowRunList = await self._send(
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

    async def each_run(
        self,
        *,
        pipeline: str | None = None,
        queue: str | None = None,
        run: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[FlowRun]:
        """Yield what `runs` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.runs(
                pipeline=pipeline, queue=queue, run=run, limit=limit, after=after
            )
            for one in page.runs:
                yield one
            if (after := page.next) is None:
                return


class AsyncBulkApi:
    """`client.bulk`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def submit(self, runs: Sequence[RunSubmission | Mapping[str, Any]]) -> BulkReceipt:
        """Submit up to 1,000 tasks. Returns 202 once the broker has stored the accepted tasks; each
        rejected task has its own error.
        """
        answer: BulkReceipt = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("bulk", "runs"),
                body=given({"runs": with_keys(runs)}),
                may_repeat=True,
            ),
            BulkReceipt,
        )
        return answer

    async def preview(
        self,
        action: Literal["cancel", "retry"],
        *,
        filter: BulkFilter | Mapping[str, Any] | None = None,
        reason: str | None = None,
        at_most: int | None = None,
        idempotency_key: str | None = None,
    ) -> BulkPreview:
        """Count the runs that an operation would change, without changing anything."""
        answer: BulkPreview = await self._send(
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

    async def begin(
        self,
        action: Literal["cancel", "retry"],
        *,
        filter: BulkFilter | Mapping[str, Any] | None = None,
        reason: str | None = None,
        at_most: int | None = None,
        idempotency_key: str | None = None,
    ) -> BulkOperation:
        """Cancel or retry all runs that match a filter, in the background. Only runs accepted before
        the request are included. The operation continues even if the process working on it is
        stopped.
        """
        answer: BulkOperation = await self._send(
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

    async def list(
        self, *, after: str | None = None, limit: int | None = None
    ) -> BulkOperationList:
        """List bulk operations, newest first."""
        answer: BulkOperationList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("bulk", "operations"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            BulkOperationList,
        )
        return answer

    async def each(self, *, limit: int | None = None) -> AsyncIterator[BulkOperation]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(limit=limit, after=after)
            for one in page.operations:
                yield one
            if (after := page.next) is None:
                return

    async def get(self, operation_id: str) -> BulkOperation:
        """Show the progress of a bulk operation."""
        answer: BulkOperation = await self._send(
            ApiRequest(
                method="GET", path=path_of("bulk", "operations", operation_id), may_repeat=True
            ),
            BulkOperation,
        )
        return answer

    async def stop(self, operation_id: str) -> BulkOperation:
        """Stop a bulk operation. Changes already made are kept."""
        answer: BulkOperation = await self._send(
            ApiRequest(method="POST", path=path_of("bulk", "operations", operation_id, "stop")),
            BulkOperation,
        )
        return answer


class AsyncSchedulesApi:
    """`client.schedules`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(
        self,
        *,
        pipeline: str | None = None,
        paused: bool | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> ScheduleList:
        """List schedules, newest first, each with its next time. A page ends early where inputs are
        large; `next` continues.
        """
        answer: ScheduleList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("schedules"),
                query={"pipeline": pipeline, "paused": paused, "after": after, "limit": limit},
                may_repeat=True,
            ),
            ScheduleList,
        )
        return answer

    async def each(
        self, *, pipeline: str | None = None, paused: bool | None = None, limit: int | None = None
    ) -> AsyncIterator[Schedule]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(pipeline=pipeline, paused=paused, limit=limit, after=after)
            for one in page.schedules:
                yield one
            if (after := page.next) is None:
                return

    async def preview(
        self,
        cron: str,
        *,
        time_zone: str | None = None,
        jitter_s: float | None = None,
        count: int | None = None,
    ) -> NextTimes:
        """Show the upcoming times of a cron expression within 50 years, without creating a schedule."""
        answer: NextTimes = await self._send(
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

    async def put(
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
        """Create a schedule (201), or replace it. Its task is validated as it would be on submission."""
        answer: Schedule = await self._send(
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

    async def get(self, name: str) -> Schedule:
        """Show a schedule."""
        answer: Schedule = await self._send(
            ApiRequest(method="GET", path=path_of("schedules", name), may_repeat=True), Schedule
        )
        return answer

    async def delete(self, name: str, *, if_match: int | str | None = None) -> None:
        """Delete a schedule and its history. Its runs are kept."""
        await self._send(
            ApiRequest(
                method="DELETE", path=path_of("schedules", name), headers={"if-match": if_match}
            ),
            None,
        )

    async def pause(
        self, name: str, *, reason: str | None = None, if_match: int | str | None = None
    ) -> Schedule:
        """Pause a schedule. Times that pass while it is paused are skipped."""
        answer: Schedule = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("schedules", name, "pause"),
                headers={"if-match": if_match},
                body=given({"reason": reason}),
            ),
            Schedule,
        )
        return answer

    async def resume(self, name: str, *, if_match: int | str | None = None) -> Schedule:
        """Resume a paused schedule from its next time."""
        answer: Schedule = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("schedules", name, "resume"),
                headers={"if-match": if_match},
            ),
            Schedule,
        )
        return answer

    async def trigger(self, name: str, *, idempotency_key: str | None = None) -> Firing:
        """Submit a schedule's task now, whether or not it is paused; its overlap policy applies."""
        answer: Firing = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("schedules", name, "trigger"),
                body=given({"idempotency_key": idempotency_key}),
            ),
            Firing,
        )
        return answer

    async def next_times(self, name: str, *, count: int | None = None) -> NextTimes:
        """Show the upcoming times of a schedule within 50 years, as if it were not paused."""
        answer: NextTimes = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("schedules", name, "next"),
                query={"count": count},
                may_repeat=True,
            ),
            NextTimes,
        )
        return answer

    async def firings(
        self, name: str, *, after: str | None = None, limit: int | None = None
    ) -> FiringList:
        """List the past times of a schedule and their outcome, newest first; at most the last 1,000."""
        answer: FiringList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("schedules", name, "firings"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            FiringList,
        )
        return answer

    async def each_firing(self, name: str, *, limit: int | None = None) -> AsyncIterator[Firing]:
        """Yield what `firings` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.firings(name, limit=limit, after=after)
            for one in page.firings:
                yield one
            if (after := page.next) is None:
                return


class AsyncWebhooksApi:
    """`client.webhooks`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def list(self, *, after: str | None = None, limit: int | None = None) -> WebhookList:
        """List webhooks, newest first."""
        answer: WebhookList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("webhooks"),
                query={"after": after, "limit": limit},
                may_repeat=True,
            ),
            WebhookList,
        )
        return answer

    async def each(self, *, limit: int | None = None) -> AsyncIterator[Webhook]:
        """Yield what `list` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.list(limit=limit, after=after)
            for one in page.webhooks:
                yield one
            if (after := page.next) is None:
                return

    async def put(
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
        """Create a webhook (201, with its secret, which is shown only once), or replace it. It
        receives events from then on.
        """
        answer: WebhookMade = await self._send(
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

    async def get(self, name: str) -> Webhook:
        """Show a webhook."""
        answer: Webhook = await self._send(
            ApiRequest(method="GET", path=path_of("webhooks", name), may_repeat=True), Webhook
        )
        return answer

    async def delete(self, name: str, *, if_match: int | str | None = None) -> None:
        """Delete a webhook and its deliveries; undelivered messages are not sent."""
        await self._send(
            ApiRequest(
                method="DELETE", path=path_of("webhooks", name), headers={"if-match": if_match}
            ),
            None,
        )

    async def enable(self, name: str, *, if_match: int | str | None = None) -> Webhook:
        """Enable a webhook. Waiting messages are sent, and it receives new events from now on."""
        answer: Webhook = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("webhooks", name, "enable"),
                headers={"if-match": if_match},
            ),
            Webhook,
        )
        return answer

    async def disable(self, name: str, *, if_match: int | str | None = None) -> Webhook:
        """Disable a webhook: nothing is sent, and no new events are stored for it."""
        answer: Webhook = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("webhooks", name, "disable"),
                headers={"if-match": if_match},
            ),
            Webhook,
        )
        return answer

    async def rotate_secret(self, name: str, *, overlap_s: float | None = None) -> WebhookMade:
        """Issue a new secret for a webhook, which is shown only once. Messages are also signed with
        the former secret for `overlap_s` seconds. Until 5 minutes before their end, the webhook is
        rotated again (409) only with an `overlap_s` of 0, which ends all secrets but the new one.
        """
        answer: WebhookMade = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("webhooks", name, "rotate"),
                body=given({"overlap_s": overlap_s}),
            ),
            WebhookMade,
        )
        return answer

    async def test(self, name: str) -> Delivery:
        """Send a message of type `webhook.test`. While the webhook is disabled, the message waits:
        `state` stays `pending`.
        """
        answer: Delivery = await self._send(
            ApiRequest(method="POST", path=path_of("webhooks", name, "test")), Delivery
        )
        return answer

    async def redeliver_dead(
        self, name: str, since: datetime, *, until: datetime | None = None
    ) -> Redelivered:
        """Send dead messages of a period again, oldest first, up to 1,000 messages."""
        answer: Redelivered = await self._send(
            ApiRequest(
                method="POST",
                path=path_of("webhooks", name, "redeliver"),
                body=given({"since": since, "until": until}),
            ),
            Redelivered,
        )
        return answer

    async def deliveries(
        self,
        name: str,
        *,
        state: Literal["pending", "delivered", "dead"] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> DeliveryList:
        """List a webhook's deliveries of the last 14 days, newest first; `state=dead` lists those that
        were given up on.
        """
        answer: DeliveryList = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("webhooks", name, "deliveries"),
                query={"state": state, "after": after, "limit": limit},
                may_repeat=True,
            ),
            DeliveryList,
        )
        return answer

    async def each_delivery(
        self,
        name: str,
        *,
        state: Literal["pending", "delivered", "dead"] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Delivery]:
        """Yield what `deliveries` has on all its pages, `limit` at a time."""
        after: str | None = None
        while True:
            page = await self.deliveries(name, state=state, limit=limit, after=after)
            for one in page.deliveries:
                yield one
            if (after := page.next) is None:
                return

    async def delivery(self, name: str, message_id: str) -> DeliveryDetail:
        """Show a delivery with its payload."""
        answer: DeliveryDetail = await self._send(
            ApiRequest(
                method="GET",
                path=path_of("webhooks", name, "deliveries", message_id),
                may_repeat=True,
            ),
            DeliveryDetail,
        )
        return answer

    async def redeliver(self, name: str, message_id: str) -> Delivery:
        """Send a message again, under the same ID, whether or not it was delivered."""
        answer: Delivery = await self._send(
            ApiRequest(
                method="POST", path=path_of("webhooks", name, "deliveries", message_id, "redeliver")
            ),
            Delivery,
        )
        return answer
