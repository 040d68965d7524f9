"""The waits of a handler: `context.sleep`, `context.wait_for_signal` and `context.call_node`. The step
is suspended meanwhile (`waits.py`)."""

import asyncio
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from hocket.kit.process.clock import now_ms
from hocket.schemas import ids
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.messages import MAX_WAITS_BYTES, NodeCall
from hocket.workers.runtime.journal.durable import SCOPE, Durable, is_inside, name_of
from hocket.workers.runtime.journal.errors import (
    CallMalformed,
    CallNotNamed,
    CallTooLarge,
    CannotSuspend,
    SignalMalformed,
    SignalTimedOut,
    StepFailed,
)
from hocket.workers.runtime.journal.journal import Place
from hocket.workers.runtime.journal.typed_values import adapter_of, whole
from hocket.workers.runtime.results.encoding import plain
from hocket.workers.runtime.results.forms import DIGEST, FORMER_DIGEST

MAX_CALL_BYTES = MAX_WAITS_BYTES // 2
"""The limit on a call's input in its message; the large parts of a larger input are moved to blobs."""
SUSPENDED_S = 5.0
"""The shortest sleep that suspends its step."""
MAX_SECONDS = 100 * 366 * 86_400
"""The longest time that a wait can name; a step waits for less."""


class DurableWaits(Durable):
    """The part of a handler's context that can wait."""

    async def sleep(self, seconds: float, name: str = "sleep") -> None:
        """Sleep for `seconds`, counted across all attempts. A sleep of SUSPENDED_S or more suspends the
        step, which then holds no worker; a shorter sleep counts towards the attempt's own time."""
        journal = self._journal
        place = journal.place(SCOPE.get(), "sleep", name_of(name))
        with self._working():
            found = await journal.find(place)
            if found is None:
                until_ms = self._moment_in(seconds, "seconds")
                await journal.record(place.entry(now_ms(), until_ms))
            else:
                until_ms = float(found.entry.value)
                self._waits.journaled(place)
            left_ms = until_ms - self._least_now_ms()
            suspends = self._waits.can_wait and not is_inside(place)
            if left_ms < SUSPENDED_S * 1000 or not suspends:
                await asyncio.sleep(max(0.0, left_ms) / 1000)
                return
            await journal.keep_failures()
        await self._waits.ended(place, until_ms=until_ms)

    async def wait_for_signal(
        self, name: str, *, timeout_s: float | None = None, returns: Any = None
    ) -> Any:
        """Wait up to `timeout_s` for a signal of the run, and return its payload, validated as
        `returns`.

        Raises SignalTimedOut if none arrives, SignalMalformed if the payload does not validate, and
        CannotSuspend if the platform does not suspend steps. The step is suspended meanwhile: it holds
        no worker, and continues from its journal in another attempt. Without `timeout_s` it waits until
        the run's deadline. A signal that arrived earlier is taken at once."""
        journal = self._journal
        if not self._waits.can_wait:
            raise CannotSuspend
        place = journal.place(SCOPE.get(), "signal", name_of(name))
        if is_inside(place):
            raise ValueError(f"`{name}` is waited for inside `context.step`: wait outside it")
        with self._working():
            found = await journal.find(place)
            if found is None:
                await journal.keep_failures()
            else:
                value = await self._resolved(found.entry.value, large=found.entry.large)
        if found is None:
            began_at_ms = now_ms()
            until_ms = None if timeout_s is None else self._moment_in(timeout_s, "timeout_s")
            ended = await self._waits.ended(place, signal=name, until_ms=until_ms)
            value = ended.model_dump(include={"timed_out", "signal_id", "payload", "by"})
            with self._working():
                await self._record(place, began_at_ms, value, len(to_json(value)))
        self._waits.journaled(place)
        if value["timed_out"]:
            raise SignalTimedOut(name=name, timeout_s=timeout_s)
        return _read_payload(name, value["payload"], returns)

    async def call_node(self, name: str, given: Any = None, /, *, returns: Any = None) -> Any:
        """Call a node that the handler's own node lists under `calls`, and return its output, validated
        as `returns`.

        Raises StepFailed with the node's error if it fails, CallNotNamed if the node is not listed, and
        CallMalformed if the output does not validate. The call is a step of the run. The handler's step
        is suspended meanwhile, as it is for a signal. The outcome is kept in the journal, so the call is
        made once per step."""
        journal = self._journal
        if name not in self._step.calls:
            named = ", ".join(f"`{one}`" for one in self._step.calls) or "none"
            raise CallNotNamed(name=name, node=self._step.node, known=named)
        if not self._waits.can_wait:
            raise CannotSuspend
        place = journal.place(SCOPE.get(), "call", name)
        if is_inside(place):
            raise ValueError(f"`{name}` is called inside `context.step`: call it outside")
        with self._working():
            found = await journal.find(place)
            if found is None:
                began_at_ms = now_ms()
                await journal.keep_failures()
                call = await self._call_of(place, given)
            elif found.entry.error is None:
                output = await self._resolved(found.entry.value, large=found.entry.large)
        if found is None:
            output = await self._called_node(place, began_at_ms, call)
        elif found.entry.error is not None:
            raise StepFailed(name, found.entry.error)
        self._waits.journaled(place)
        return _read_output(name, output, returns)

    def _moment_in(self, seconds: float, field: str) -> float:
        """Return when a time is over (epoch ms); raise ValueError for one that no wait can have."""
        if not abs(seconds) <= MAX_SECONDS:  # also true of NaN
            reason = "use a number of seconds, of at most 100 years"
            raise ValueError(f"`{field}` is {seconds}: {reason}")
        return self._least_now_ms() + seconds * 1000

    def _least_now_ms(self) -> float:
        """Return the time: a clock that is behind the coordinator's must not make a wait shorter."""
        return max(now_ms(), self._step.dispatched_at_ms or 0.0)

    async def _called_node(self, place: Place, began_at_ms: float, call: NodeCall) -> Any:
        """Return the output of a call, once it is in the journal."""
        ended = await self._waits.ended(place, call=call)
        with self._working():
            if ended.error is not None:
                self._journal.failed(place.entry(began_at_ms, error=ended.error))
                self._waits.journaled(place)
                raise StepFailed(call.name, ended.error)
            output = await self._resolved(ended.output)
            await self._record(place, began_at_ms, output, len(to_json(output)))
        return output

    async def _call_of(self, place: Place, given: Any) -> NodeCall:
        """Return a call with its input, in the form of an output; the large parts of an input over
        MAX_CALL_BYTES go to blobs."""
        digest, value = self._digest_of(place, given), plain(given, "input")
        size_bytes = len(to_json(value))
        if size_bytes > MAX_CALL_BYTES and self._values is not None:
            excess_bytes = size_bytes - MAX_CALL_BYTES
            value = await self._values.spilled(self._step.tenant, value, excess_bytes)
            size_bytes = len(to_json(value))
        if size_bytes > MAX_CALL_BYTES:
            limit_bytes = MAX_CALL_BYTES
            raise CallTooLarge(name=place.name, size_bytes=size_bytes, limit_bytes=limit_bytes)
        return NodeCall(name=place.name, digest=digest, input=value)

    def _digest_of(self, place: Place, given: Any) -> str:
        """Return the digest of a call's input; raise OutputNotJson for one with a secret. A worker of
        the release before may have made another one of the same input, which is then the call's."""
        digest = ids.input_digest(plain(given, "input", DIGEST))
        known = self._waits.digest_at(place)
        if known in (None, digest):
            return digest
        former = ids.input_digest(plain(given, "input", FORMER_DIGEST))
        return former if former == known else digest


def _read_payload(name: str, payload: Any, returns: Any) -> Any:
    try:
        return _read(payload, returns)
    except ValidationError as error:
        fault = first_fault(error)
        field = ".".join(("payload", *map(str, fault.place)))
        raise SignalMalformed(name=name, field=field, reason=fault.reason) from None


def _read_output(name: str, output: Any, returns: Any) -> Any:
    try:
        return _read(output, returns)
    except ValidationError as error:
        fault = first_fault(error)
        field = ".".join(("output", *map(str, fault.place)))
        raise CallMalformed(name=name, field=field, reason=fault.reason) from None


def _read(value: Any, returns: Any) -> Any:
    adapter = None if returns is None else adapter_of(_read, returns)
    return value if adapter is None else whole(adapter.validate_json(to_json(value)))
