"""The behaviour of simulated nodes: quick, slow, failing, hanging, stubborn; and the gateway.

A node's kind is part of its handler's name (`sim:flaky`). What an execution does is derived from a hash
of run, step, attempt and delivery, so that it does not depend on what else runs; two deliveries of one
attempt give different outputs, as two calls of a model would.
"""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

from hocket.kit.nats.bus import Bus
from hocket.kit.process.clock import now_ms
from hocket.schemas import ids, subjects
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import CallReply, CallRequest, NodeCall
from hocket.workers.runtime.journal.journal import Place
from simulation.engine.database import UNSTORABLE
from simulation.engine.world import Process
from simulation.platform.journal import Execution, Journal

HANG_S = 3_600.0
LONGEST_S = {"slow": 0.8, "long": 4.0}
STUBBORN_S = 2.5
MAX_WAIT_MS = 2_000.0
GIVES = (
    "nul",
    "surrogate",
    "deep",
    "deepest",
    "large",
    "integer",
    "nan",
    "unstorable",
    "unstorable",
)
"""Kinds of output that may harm a component that stores it; an input requests one with `gives`."""
WAITING = "waits"
"""In plays whose seed begins with this, some of the slow handlers wait for a signal and then for a
timeout instead."""
WAITING_KINDS = ("slow", "long", "flaky")
CALLING = "calls"
"""In plays whose seed begins with this, handlers call nodes, in parallel and one after another."""
EMITTED = ("sim:quick", "sim:slow", "sim:flaky")


class Busy(HocketError):
    """The thing is busy."""

    code = "busy"
    error_class = ErrorClass.TRANSIENT


class Broken(HocketError):
    """The thing is broken."""

    code = "broken"


class Handlers:
    """The handlers of one worker process."""

    def __init__(self, journal: Journal, process: Process) -> None:
        self._journal = journal
        self._process = process
        self._seed = journal.world.seed

    def by_type(self) -> dict[str, Callable[[Any], Awaitable[Any]]]:
        return {"python": self.run, "llm": self.run, "planning": self.run}

    async def run(self, context: Any) -> Any:
        journal = self._journal
        execution = journal.begin(context, self._process)
        try:
            output = await self._behave(context, execution)
        except asyncio.CancelledError:
            journal.end(execution, "cancelled")
            raise
        except Exception as error:
            journal.end(execution, f"error {type(error).__name__}")
            raise
        journal.end(execution, "ok", output)
        return output

    async def _behave(self, context: Any, execution: Execution) -> Any:
        kind = context.config.get("handler", "sim:quick").partition(":")[2]
        die = self._die(context)
        if context.step.type == "llm":
            await asyncio.sleep(0.005 * die("before"))
            reply = await context.model(context.config["model"], "hello")
            return self._output(context, die) | {"text": reply.text}
        if context.step.type == "planning":
            await asyncio.sleep(0.05 * die("time"))
            return _emitted(die)
        if kind == "hang" and die("hang") < 0.4:
            await asyncio.sleep(HANG_S)
        if context.step.calls:
            await _calls(context, fails=die("gives up") < 0.3)
        elif kind in WAITING_KINDS and str(self._seed).startswith(WAITING):
            await _waits(context)
        elif kind == "stubborn" and die("stubborn") < 0.5:
            execution.stubborn = True
            await _stubbornly(0.1 + die("time"))
        else:
            longest_s = LONGEST_S.get(kind, 0.03)
            await asyncio.sleep(0.001 + longest_s * die("time"))
        if kind == "flaky" and die("fails") < 0.4:
            raise Busy
        if kind == "failing" and die("fails") < 0.5:
            raise Broken
        return self._output(context, die)

    def _die(self, context: Any) -> Callable[[str], float]:
        step = context.step
        parts = (self._seed, step.run_id, step.step, str(step.attempt), str(context.delivery))
        return lambda purpose: ids.fraction(*parts, purpose)

    def _output(self, context: Any, die: Callable[[str], float]) -> dict[str, Any]:
        number = next(self._journal.outputs)  # no two executions give the same output
        token = f"{context.attempt_id}/{context.delivery}/{self._process.name}/{number}"
        n = int(10 * die("n"))
        output = {"token": token, "n": n, "xs": list(range(n % 4))}
        if isinstance(context.input, dict) and (kind := context.input.get("gives")):
            output["given"] = _harmful(kind)
        return output


def _harmful(kind: str) -> Any:
    """Return a harmful value."""
    if kind in ("deep", "deepest"):
        value: Any = 1
        for _ in range(150 if kind == "deep" else 250):
            value = [value]
        return value
    return {
        "nul": {"a\x00": "b\x00c"},
        "surrogate": ["\ud800"],
        "large": "x" * 200_000,
        "integer": 2**70,
        "nan": [float("nan"), float("inf")],
        "unstorable": {"x": UNSTORABLE},
    }[kind]


async def _waits(context: Any) -> None:
    """Wait twice, each time as the context does, but without the journal, which no coordinator here
    keeps."""
    step = context.step
    for ordinal in (1, 2):
        takes_ms = MAX_WAIT_MS * ids.fraction(step.run_id, step.step, str(ordinal), "waits")
        name = step.step if ordinal == 1 else "go"
        place = Place("", ordinal, "signal", name)
        await context._waits.ended(place, signal=name, until_ms=now_ms() + takes_ms)


async def _calls(context: Any, *, fails: bool) -> None:
    """Call nodes as the context does, but without the journal: two in parallel, and then one more. If
    one of them failed, fail as well, or continue."""
    names = sorted(context.step.calls)

    async def called(ordinal: int) -> Any:
        given = {"n": ordinal, "xs": [1, 2]}
        call = NodeCall(
            name=names[ordinal % len(names)], digest=ids.input_digest(given), input=given
        )
        place = Place("", ordinal, "call", call.name)
        return await context._waits.ended(place, call=call)

    ended = [*await asyncio.gather(called(1), called(2)), await called(3)]
    if fails and any(one.error is not None for one in ended):
        raise Busy


async def _stubbornly(seconds: float) -> None:
    """Sleep, ignoring the first cancellation."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(STUBBORN_S)


def _emitted(die: Callable[[str], float]) -> dict[str, Any]:
    if die("refused") < 0.1:
        return {"nodes": {"x": {"type": "sql", "database": "d", "query": "select 1"}}}
    count = 1 + int(3 * die("count"))
    nodes: dict[str, Any] = {}
    for number in range(count):
        kind = EMITTED[int(len(EMITTED) * die(f"kind{number}"))]
        node: dict[str, Any] = {"type": "python", "handler": kind, "retry": {"backoff_ms": 50}}
        if number and die(f"needs{number}") < 0.5:
            node["needs"] = [f"e{number - 1}"]
        if die(f"map{number}") < 0.25:  # three of them exceed the policy's number of steps
            node["map"] = {"over": "input.xs"}
        nodes[f"e{number}"] = node
    return {"nodes": nodes, "output": f"{{{{ nodes.e{count - 1}.output }}}}"}


async def serve_calls(process: Process, journal: Journal, bus: Bus) -> None:
    """Serve as the gateway: each call id is metered once, however often it is requested."""
    asked: dict[str, asyncio.Task[bytes]] = {}

    async def answer(request: CallRequest) -> bytes:
        fraction = ids.fraction(journal.world.seed, request.call_id)
        await asyncio.sleep(0.002 + 0.15 * fraction)
        cost = journal.metered.setdefault(
            request.call_id, Decimal(1 + int(3 * fraction)) / Decimal(100)
        )
        reply = CallReply(call_id=request.call_id, text="hi", model=request.model, cost_usd=cost)
        return reply.model_dump_json().encode()

    async def called(message: Any) -> None:
        request = CallRequest.model_validate_json(message.data)
        task = asked.get(request.call_id)
        if task is None:
            task = asked[request.call_id] = asyncio.create_task(answer(request))
        inbox = message.reply
        task.add_done_callback(lambda done: bus.publish_nowait(inbox, done.result()))

    await bus.subscribe(subjects.GATEWAY_CALL, called, queue="gateway")
    await asyncio.Event().wait()
