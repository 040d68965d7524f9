"""One request at one replica: asked, stopped, and what it used, as its backend says or as estimated.

A caller that goes away or runs out of time does not end the bill: at a backend with prices that is not
known to stop with its connection the reply is read on, for READ_ON_MS at most, to the usage at its end;
the request keeps its place meanwhile, for it has one at the backend. Only then is its use estimated
(`core/calls/unmetered.py`), as that of all which nobody metered.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from hocket.gateway.backends.protocol import Backend, BackendError, BackendTimedOut, Chunks
from hocket.gateway.calls.attempts.hedged_request import UpstreamRequest
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.decode_speed import DecodeSpeeds
from hocket.gateway.core.calls import unmetered
from hocket.gateway.core.config.table import BackendSpec
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallRequest, Completion

READ_ON_MS = 60_000.0
"""How long a reply is read to its end for what it used, after its caller has gone."""
OUT_OF_TIME = "its deadline passed"


async def asked(
    backend: Backend,
    request: CallRequest,
    lane: UpstreamRequest,
    timeout_ms: float,
    chunks: Chunks | None,
) -> tuple[Completion, HocketError | None]:
    """Return what the backend made, or what it used together with its error. What is not metered is
    marked as estimated, and still to be estimated."""
    assert lane.slot is not None
    spec, stop = lane.slot.spec, lane.cancellation
    if stop.asked:  # nobody was asked
        return Completion(), stop.error
    try:
        if spec.reads_on:
            longer_ms = min(timeout_ms + READ_ON_MS, spec.timeout_ms)
            made = backend.call(request, timeout_ms=longer_ms, chunks=chunks)
            completion = await stop.run(made, reads_on_ms=READ_ON_MS)
        else:
            made = backend.call(request, timeout_ms=timeout_ms, chunks=chunks)
            completion = await stop.run(made)
    except BackendError as error:
        spent = error.spent
        if error.may_be_charged and not (spent.input_tokens or spent.output_tokens):
            spent = Completion(estimated=True)
        return spent, stop.error if stop.asked else error
    except HocketError as error:
        seen = lane.relay.spent if lane.relay is not None else Completion()
        return seen.model_copy(update={"estimated": True}), error
    if spec.reads_on and stop.asked:
        return _counts(completion), stop.error
    return completion, None


def used(request: CallRequest, lane: UpstreamRequest, speeds: DecodeSpeeds) -> Completion:
    """Return what a lane's request used, estimated where its backend did not say."""
    assert lane.slot is not None
    spec = lane.slot.spec
    if not lane.completion.estimated or spec.kind == "function":
        return lane.completion
    return unmetered.used(
        request,
        lane.completion,
        cut=_cut(lane),
        goes_on=not spec.stops_on_disconnect,
        elapsed_ms=lane.latency_ms,
        written=speeds.tokens_within(spec.key, lane.latency_ms),
    )


@contextmanager
def timed_out_at_deadline(stop: Cancellation, spec: BackendSpec, left_ms: float) -> Iterator[None]:
    """Let the caller go when its deadline passes inside the block, where the reply is read on."""
    if not spec.reads_on:
        yield
        return
    late = BackendTimedOut(component=spec.name, timeout_ms=round(left_ms))
    loop = asyncio.get_running_loop()
    timer = loop.call_later(max(left_ms, 0.0) / 1000, stop.cancel, OUT_OF_TIME, late)
    try:
        yield
    finally:
        timer.cancel()


def _cut(lane: UpstreamRequest) -> bool:
    """Return whether the request was given up before its backend was done."""
    given_up = not isinstance(lane.error, BackendError | None)
    return lane.cancellation.asked or given_up or isinstance(lane.error, BackendTimedOut)


def _counts(completion: Completion) -> Completion:
    """Return what a completion used; nobody gets its text any more."""
    if completion.estimated:
        return Completion(
            text=completion.text, output_tokens=completion.output_tokens, estimated=True
        )
    return Completion(
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cached_tokens=completion.cached_tokens,
        cache_write_tokens=completion.cache_write_tokens,
    )
