"""One request to one replica: sending it, stopping it, and its usage, as reported by the backend or
estimated.

The bill does not end when a caller goes away or runs out of time. If a backend has prices and is
not known to stop when disconnected, its reply is read on, for at most READ_ON_MS, up to the usage
at its end. The request keeps its slot meanwhile, because it still occupies the backend. Only if
that fails is its usage estimated (`core/calls/unmetered.py`), as for every unmetered request.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from hocket.gateway.backends.protocol import Backend, BackendError, BackendTimedOut, Chunks
from hocket.gateway.calls.attempts.hedged_request import UpstreamRequest
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.core.budgets.decode_speed import DecodeSpeeds
from hocket.gateway.core.calls import unmetered
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import GatewayBroken
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallRequest, Completion

log = structlog.get_logger()

READ_ON_MS = 60_000.0
"""How long a reply is read on for its usage after its caller has gone."""
OUT_OF_TIME = "its deadline passed"


async def asked(
    backend: Backend,
    request: CallRequest,
    lane: UpstreamRequest,
    timeout_ms: float,
    chunks: Chunks | None,
) -> tuple[Completion, HocketError | None]:
    """Return the backend's completion, or its usage together with the error.

    Unmetered usage is only marked as estimated; the estimate itself is made later.
    """
    assert lane.slot is not None
    spec, stop = lane.slot.spec, lane.cancellation
    if stop.asked:  # no backend was asked
        return Completion(), stop.error
    if chunks is not None:
        chunks = lane.slot.silence.broken_by(chunks)
    try:
        if spec.reads_on:
            longer_ms = min(timeout_ms + READ_ON_MS, spec.timeout_ms)
            made = backend.call(request, timeout_ms=longer_ms, chunks=chunks)
            completion = await stop.run(made, reads_on_ms=READ_ON_MS)
        else:
            made = backend.call(request, timeout_ms=timeout_ms, chunks=chunks)
            completion = await stop.run(made)
    except BackendError as error:
        return _spent(request, error), stop.error if stop.asked else error
    except HocketError as error:
        return _seen(lane), error
    except MemoryError:
        raise
    except Exception as error:  # the backend may have been asked, and may charge for it
        log.exception("backend_call_crashed", backend=spec.key, call_id=request.call_id)
        return _seen(lane), GatewayBroken(reason=type(error).__name__, component="gateway")
    if spec.reads_on and stop.asked:
        return _counts(completion), stop.error
    return completion, None


def _spent(request: CallRequest, error: BackendError) -> Completion:
    """Return what a failed request used; estimated if it may be charged and its backend did not say."""
    spent = error.spent
    if spent.estimated and error.read_bytes is not None:
        told = max(spent.output_tokens, unmetered.read_tokens(request, error.read_bytes))
        return spent.model_copy(update={"output_tokens": told})
    if spent.input_tokens or spent.output_tokens or error.unconnected or not error.may_be_charged:
        return spent
    return Completion(estimated=True)


def _seen(lane: UpstreamRequest) -> Completion:
    """Return what was received of an answer that ended in no way known here."""
    seen = lane.relay.spent if lane.relay is not None else Completion()
    return seen.model_copy(update={"estimated": True})


def used(request: CallRequest, lane: UpstreamRequest, speeds: DecodeSpeeds) -> Completion:
    """Return what a lane's request used, estimated if its backend did not report it."""
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
def timed_out_at_deadline(
    stop: Cancellation, spec: BackendSpec, left_ms: float, *, reads_on: bool
) -> Iterator[None]:
    """Release the caller when its deadline passes inside the block, if a reply may be read on."""
    if not reads_on:
        yield
        return
    late = BackendTimedOut(component=spec.name, timeout_ms=max(round(left_ms), 1))
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


def without_content(completion: Completion) -> Completion:
    """Return a completion reduced to its usage."""
    return Completion(
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cached_tokens=completion.cached_tokens,
        cache_write_tokens=completion.cache_write_tokens,
        estimated=completion.estimated,
    )


def _counts(completion: Completion) -> Completion:
    """Return a completion reduced to its usage, because nobody will read its text; the text stays if
    its usage is still to be estimated by it."""
    if completion.estimated:
        return Completion(
            text=completion.text, output_tokens=completion.output_tokens, estimated=True
        )
    return without_content(completion)
