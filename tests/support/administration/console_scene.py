"""What the console shows in the browser: a platform with a history of runs, calls, messages and
budgets, written directly into Postgres and NATS. For tests its texts are hostile, for the screenshots
of the documentation ordinary."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from os import environ
from typing import Any

import msgspec

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.process.clock import now_ms
from hocket.schemas import journals, subjects
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import (
    ArmState,
    BudgetRule,
    ExperimentState,
    ModelRateState,
    ReplicaState,
    ReplicasTold,
    TypeDescribed,
)
from hocket.schemas.structs.journals import KeptEntry, KeptMessage
from support.administration.told_replicas import ToldGateways
from support.administration.webhook_rig import add_webhook
from support.rest_rig import Rest
from support.runs.rows import insert_call, insert_line, insert_run, insert_step
from support.values.hostile_markup import PAYLOADS

SHORT = "r4f1c0a92be7d5536018ac3d9"
OTHER = "r93be07d14c2fa86550ed41b7"
WAITING = "rb8205e6cf3917ad4420c9e15"
ATTACKED = "r2d77a1c4508be93f61d0524e"
YESTERDAY = "r60a4c8f2197be3d5540cd81a"
REASON = "The draft cites a source that is not there."
NOW = datetime.now(UTC)
IS_SHOWN = "HOCKET_SCREENSHOTS" in environ
"""Whether screenshots are made."""
HOSTILE = "The search gave nothing." if IS_SHOWN else "".join(PAYLOADS)
PIPELINE: dict[str, Any] = {
    "pipeline": "research",
    "description": "Reads sources for each question and writes an answer.",
    "slo_ms": 5000,
    "input": {"type": "object", "properties": {"question": {"type": "string"}}},
    "nodes": {
        "plan": {"type": "python", "handler": "a:plan"},
        "read": {
            "type": "python",
            "handler": "a:read",
            "needs": ["plan"],
            "map": {"over": "input.sources"},
        },
        "draft": {"type": "python", "handler": "a:draft", "needs": ["read"]},
        "check": {"type": "python", "handler": "a:check", "needs": ["draft"]},
    },
}  # fmt: skip
TRIAGE: dict[str, Any] = {
    "pipeline": "triage",
    "description": "Sorts letters by how urgent they are.",
    "slo_ms": 2000,
    "nodes": {"sort": {"type": "python", "handler": "a:sort"}},
}
PATH = [
    ["plan", "plan", 1, "queue", 220_000, 1], ["plan", "plan", 1, "model", 480_000, 1],
    ["plan", "plan", 1, "execution", 140_000, 1], ["read", "read", 1, "coordinator", 10_000, 1],
    ["read", "read", 1, "queue", 220_000, 1], ["read", "read", 1, "execution", 620_000, 1],
    ["draft", "draft", 1, "coordinator", 10_000, 1], ["draft", "draft", 1, "queue", 220_000, 1],
    ["draft", "draft", 1, "model", 480_000, 1], ["draft", "draft", 1, "execution", 200_000, 1],
]  # fmt: skip
SLOW_PATH = [
    ["plan", "plan", 1, "queue", 220_000, 1], ["plan", "plan", 1, "model", 500_000, 1],
    ["plan", "plan", 1, "execution", 200_000, 1], ["read", "read", 1, "coordinator", 10_000, 1],
    ["read", "read", 1, "queue", 220_000, 1], ["read", "read", 1, "execution", 900_000, 1],
    ["draft", "draft", 1, "coordinator", 10_000, 1], ["draft", "draft", 1, "queue", 240_000, 1],
    ["draft", "draft", 1, "model", 2_900_000, 1], ["draft", "draft", 1, "execution", 400_000, 1],
    ["check", "check", 1, "coordinator", 10_000, 1], ["check", "check", 1, "queue", 90_000, 1],
    ["check", "check", 1, "execution", 500_000, 1],
]  # fmt: skip
SLOW_STEPS = (("plan", 0, 220, 700), ("read", 930, 220, 900), ("draft", 2_060, 240, 3_300),
              ("check", 5_610, 90, 500))  # fmt: skip
DECISION = {
    "model": "writer",
    "reason": "the cheaper backend would have missed the deadline by 900 ms",
    "candidates": [
        {"backend": "opus-eu", "score": [0, 0.011]},
        {"backend": "haiku-us", "score": [1, 0.002], "refused": "its breaker is open"},
    ],
}
PRICES = """
INSERT INTO hocket.price (tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, request_usd,
    effective_from)
VALUES ('default', 'writer', 'opus-eu', 5, 25, 0, now()),
    ('default', 'writer', 'haiku-us', 1, 5, 0, now())
"""
PLACE = """
INSERT INTO hocket.flow_place (run_id, gate, tenant, pipeline, kind, key, rule, accepted_at, since,
    is_last, state)
VALUES ($1, 0, 'default', 'research', 'concurrency', $2, '{"limit": 2}', $3, $3, true, $4)
"""
BULK = """
INSERT INTO hocket.bulk_operation (operation_id, tenant, action, state, filter, reason, matching,
    changed, skipped, created_by, created_at, finished_at)
VALUES ('b0', 'default', 'retry', 'stopped', '{"pipeline": "triage", "status": "failed"}',
    'the letters of Tuesday', 1800, 1204, 6, $1, now() - interval '2 days', now() - interval '2 days')
"""
FIRED = """
INSERT INTO hocket.schedule_firing (firing_id, schedule_id, tenant, cause, state, planned_at, run_id,
    over, decided_at, fired_at)
SELECT 'f' || number, schedule_id, tenant, 'on_time', 'fired',
       $2::timestamptz - number * interval '1 day', $1, true, $2, $2
FROM hocket.schedule, generate_series(1, 3) number WHERE name = 'mornings'
"""


def plain_or_hostile(ordinary: str) -> str:
    """Return an ordinary text for screenshots, and a hostile one for tests."""
    return ordinary if IS_SHOWN else HOSTILE


async def set_up(rest: Rest) -> None:
    """Write everything that the pages show."""
    assert (await rest.post("/v1/pipelines", PIPELINE)).status == 201
    assert (await rest.post("/v1/pipelines", TRIAGE)).status == 201
    await add_failed_runs(rest)
    await _add_other_runs(rest)
    await _add_many_runs(rest)
    await _add_schedules(rest)
    await _add_lines(rest)
    await _add_journal(rest.bus)
    await _add_platform(rest)
    await told_gateways(rest.bus)
    await add_webhook(
        rest, "ops", text=plain_or_hostile("Tells the room of operations."), run_id=ATTACKED
    )
    await add_webhook(rest, "pager", text="Wakes whoever is on call.", run_id=SHORT)


async def add_failed_runs(rest: Rest) -> None:
    """Add a run that failed at its third step, and one whose texts are hostile."""
    for run_id, text, cost in ((SHORT, REASON, 0.0482), (ATTACKED, HOSTILE, 0)):
        await add_run(rest, run_id, text, status="failed", took_ms=2_600, cost=cost)
        for number, node in enumerate(("plan", "read", "draft")):
            state = "failed" if node == "draft" else "succeeded"
            ready = NOW + timedelta(milliseconds=850 * number)
            times = {"queue_ms": 220, "ran_ms": 620, "allowed_ms": 5_000 - 850 * number}
            worker = f"worker-{1 + number % 2}"
            await insert_step(
                rest.pool, run_id, node, ready, text, state=state, worker=worker, **times
            )


async def add_run(rest: Rest, run_id: str, text: str = "fine", **fields: Any) -> None:
    """Add a run of the pipeline `research`."""
    at = fields.pop("at", NOW)
    given = {"pipeline": "research", "budget": 0.05, "path": PATH, "input": {"question": text}}
    await insert_run(rest.pool, run_id, at, text, **given | fields)


async def _add_other_runs(rest: Rest) -> None:
    """Add a second version, slow runs of a customer today and yesterday, calls, and a waiting approval.
    x"""
    checked = PIPELINE["nodes"] | {"send": {"type": "approval", "needs": ["check"],
        "prompt": "May the answer go to the customer?"}}  # fmt: skip
    changed = {**PIPELINE, "slo_ms": 8_000, "nodes": checked}
    assert (await rest.post("/v1/pipelines", changed)).status == 201
    slow = {"took_ms": 6_200, "labels": {"customer": "acme"}, "path": SLOW_PATH, "cost": 0.0311}
    for run_id, at in ((OTHER, NOW), (YESTERDAY, NOW - timedelta(hours=26))):
        await add_run(rest, run_id, "Another answer.", at=at, **slow)
        for node, ready_ms, queue_ms, ran_ms in SLOW_STEPS:
            said = REASON if node == "plan" else "Another answer."
            ready = at + timedelta(milliseconds=ready_ms)
            times = {"queue_ms": queue_ms, "ran_ms": ran_ms, "worker": "worker-1"}
            await insert_step(rest.pool, run_id, node, ready, said, **times)
    await add_run(rest, WAITING, "A letter.", status="running", version=2, allowed_ms=3_600_000)
    await insert_step(
        rest.pool, WAITING, "send", NOW, "A letter.", type="approval", state="waiting"
    )
    await rest.pool.execute(PRICES)
    calls = (("call", "plan", 230, 0.0124), ("call", "draft", 1_930, 0.0201),
             ("retry", "plan", 480, 0.0083), ("speculation", "draft", 1_960, 0.0074))  # fmt: skip
    for number, (kind, node, at_ms, cost) in enumerate(calls):
        await insert_call(
            rest.pool,
            f"c{number}",
            NOW + timedelta(milliseconds=at_ms),
            kind=kind,
            pipeline="research",
            run_id=SHORT,
            node=node,
            decision=DECISION,
            labels={"customer": "acme"},
            model="writer",
            backend="opus-eu",
            cost=cost,
            latency_ms=240 if kind == "retry" else 430,
        )

    if not IS_SHOWN:
        losers = [{"backend": HOSTILE[:200], "refused": HOSTILE[:100]}]
        await insert_call(
            rest.pool,
            "h0",
            NOW + timedelta(seconds=3),
            pipeline="research",
            run_id=ATTACKED,
            node="read",
            decision={**DECISION, "reason": HOSTILE, "candidates": losers},
            labels={"customer": HOSTILE[:80]},
            model=HOSTILE[:200],
            backend=HOSTILE[:200],
            cost=0.0001,
        )


async def _add_many_runs(rest: Rest) -> None:
    """Add the other runs of the last 24 hours."""
    for number in range(44):
        at = NOW - timedelta(minutes=7 + 31 * number)
        pipeline = "triage" if number % 3 else "research"
        status = {9: "cancelled", 5: "degraded"}.get(number % 13, "succeeded")
        fields = {
            "took_ms": 420 + 137 * (number % 11) + (1_900 if pipeline == "research" else 0),
            "labels": {"customer": ("globex", "initech", "umbrella")[number % 3]},
            "cost": round(0.0021 + 0.0007 * (number % 9), 4),
            "allowed_ms": 5_000 if pipeline == "research" else 2_500,
        }
        if pipeline == "triage":
            fields["path"] = [["sort", "sort", 1, "queue", 40_000, 1],
                              ["sort", "sort", 1, "execution", 380_000, 1]]  # fmt: skip
        run_id = f"r{sha256(str(number).encode()).hexdigest()[:24]}"
        await add_run(rest, run_id, "A letter.", at=at, pipeline=pipeline, status=status, **fields)


async def _add_schedules(rest: Rest) -> None:
    schedule = {
        "description": plain_or_hostile("Asks again what was left open.")[:200],
        "cron": "30 2 * * *",
        "time_zone": "Europe/Berlin",
        "task": {
            "pipeline": "research",
            "input": {"question": plain_or_hostile("What is left open?")},
        },
    }
    assert (await rest.ask("PUT", "/v1/schedules/nightly", json=schedule)).status == 201
    assert (await rest.post("/v1/schedules/nightly/trigger")).status == 202
    morning = {"description": "Answers what came in overnight.", "cron": "0 6 * * 1-5",
        "time_zone": "Europe/Berlin", "task": {"pipeline": "research",
        "input": {"question": "What did customers ask overnight?"}}}  # fmt: skip
    assert (await rest.ask("PUT", "/v1/schedules/mornings", json=morning)).status == 201
    at = NOW.replace(hour=5, minute=0, second=0, microsecond=0)
    await rest.pool.execute(FIRED, OTHER, at)


async def _add_lines(rest: Rest) -> None:
    said = [
        ("plan", "info", "sources_chosen", {"count": 3, "took_ms": 41.5}),
        ("read", "warning", "source_slow", {"url": "https://example.com/a", "waited_s": 2}),
        ("draft", "debug", "prompt_ready", {"tokens": 1_812}),
        ("draft", "error", REASON, {"code": "check_failed"}),
    ]
    for number, (step, level, text, fields) in enumerate(said):
        at = NOW + timedelta(milliseconds=400 + 640 * number)
        await insert_line(rest.pool, SHORT, step, at, text, level=level, fields=fields)
        await insert_line(
            rest.pool,
            ATTACKED,
            HOSTILE[:200],
            at,
            HOSTILE,
            number=number,
            fields={HOSTILE: HOSTILE},
        )


async def _add_journal(bus: Bus) -> None:
    """Add what the handler of a step did, and what another one claims to have done."""
    at_ms = NOW.timestamp() * 1_000
    for run_id, step, names in (
        (SHORT, "read", ("fetch example.com/a", "fetch example.com/b", "summarize")),
        (ATTACKED, "read", tuple(one[:200] for one in PAYLOADS if one.isprintable())),
    ):
        entries = [
            KeptEntry(
                ordinal=number,
                name=name,
                started_at_ms=at_ms + 1_080 + 140 * number,
                finished_at_ms=at_ms + 1_080 + 140 * number + 120,
                cost_usd="0.002" if name == "summarize" else "0",
            )
            for number, name in enumerate(names)
        ]
        kept = KeptMessage(run_id, step, 1, at_ms, 1, "worker-2", 0, "", True, entries)
        subject = subjects.journal(run_id, journals.name_of(run_id, step))
        await bus.publish(subject, msgspec.json.encode(kept))


async def _add_platform(rest: Rest) -> None:
    """Add key limits with waiting runs, a bulk operation, a dead letter, partitions and workers."""
    for number, (key, state) in enumerate(
        (
            ("acme", "passed"),
            ("acme", "passed"),
            ("acme", "waiting"),
            (plain_or_hostile("globex")[:80], "passed"),
        )
    ):
        run_id = f"r{number + 0xA0:024x}"
        at = NOW - timedelta(seconds=50 - number)
        await rest.pool.execute(PLACE, run_id, key.replace("\x00", ""), at, state)
    await rest.pool.execute(BULK, f"key:{rest.key.split('_')[1]}")
    error = ErrorInfo(
        code="pipeline_unknown",
        message=plain_or_hostile("There is no pipeline `retired`."),
        error_class=ErrorClass.INVALID,
        retryable=False,
    )
    await dead_letters.bury(
        rest.bus,
        "task",
        subject=subjects.task("default", "retired"),
        payload=json.dumps({"question": plain_or_hostile("Who is on call?")}).encode(),
        headers={},
        error=error,
    )
    for number in range(4):
        await rest.pool.execute(
            "INSERT INTO hocket.partition (partition, owner, epoch, applied_seq) VALUES ($1, $2, 3, $3)",
            number,
            f"coordinator-{1 + number % 2}",
            48_211 + 977 * number,
        )
    types = rest.app.state.context.node_types.types
    described = TypeDescribed(worker="crm-1", type="crm.lookup", description="Finds a customer.")
    types.described(described, now_ms())
    for worker, slots in (("worker-1", {"python": 8, "llm": 16}), ("worker-2", {"python": 8}),
                          ("crm-1", {"crm.lookup": 4})):  # fmt: skip
        types.announced(worker, slots, now_ms())


async def told_gateways(bus: Bus) -> ToldGateways:
    """Return two gateways with three replicas, one of which is drained and another unwell at one
    gateway."""
    good = ReplicaState(
        replica="writer-gpu/1", backend="writer-gpu", kind="openai", models=("writer",), limit=8,
        in_flight=3,
    )  # fmt: skip
    drained = {"replica": "writer-gpu/2", "in_flight": 0, "drained": True, "by": "key:ops",
        "reason": "new driver", "changed_at_ms": NOW.timestamp() * 1000}  # fmt: skip
    cold = {"replica": "judge", "backend": "judge", "kind": "triton", "models": ("judge",),
        "in_flight": 0, "level": "cold"}  # fmt: skip
    hostile = {"replica": HOSTILE[:200], "backend": HOSTILE[:200], "reason": HOSTILE,
        "changed_at_ms": 1.0, "models": (HOSTILE[:200],), "in_flight": 0}  # fmt: skip
    waits = {"waiting": 5, "waiting_by_class": {"interactive": 1, "batch": 4}}
    unwell = good.model_copy(
        update={"breaker": "open", "openings": 2, "rests_ms": 4_000.0, **waits}
    )
    more = [good.model_copy(update=one) for one in (drained, cold)]
    attacked = [good.model_copy(update=hostile)] if not IS_SHOWN else []
    rate = ModelRateState(
        tenant="default", model="writer", requests_per_min=600, tokens_per_min=200_000,
        beyond="wait", requests=212, tokens=88_400, waiting=0, gateways=2,
    )  # fmt: skip
    budgets = tuple(
        BudgetRule.model_validate({"level": level, "name": name, "usd": usd, "per": per})
        for level, name, usd, per in (
            ("tenant", "default", "25", "month"),
            ("pipeline", "research", "0.06", "day"),
            ("label", "customer=*", "0.4", "day"),
            (
                "label",
                "team=search" if IS_SHOWN else "team=<img src=x onerror=alert(1)>",
                "5",
                "month",
            ),
        )
    )
    told = {"gateways": ("gateway-a", "gateway-b"), "budgets": budgets, "rates": (rate,)}
    gateways = ToldGateways(
        bus,
        ReplicasTold(gateway="gateway-a", replicas=(good, *more, *attacked), **told),
        ReplicasTold(
            gateway="gateway-b",
            replicas=(unwell, *more, *attacked),
            **told | {"rates": (rate.model_copy(update={"requests": 0, "tokens": 0}),)},
        ),
        experiments=(canary(),),
        models=("writer", "judge", "smart"),
    )
    await gateways.open()
    return gateways


def canary() -> ExperimentState:
    """Return a canary of the pipeline `research`."""
    return ExperimentState(
        experiment="shorter-answers",
        model="writer",
        pipeline="research",
        arms=(
            ArmState(arm="today", model="writer", weight=0.9, control=True, calls=1_840,
                     errors=(3, 200)),
            ArmState(arm="shorter", model="writer-short", weight=0.1, calls=204, errors=(1, 200)),
        ),
    )  # fmt: skip
