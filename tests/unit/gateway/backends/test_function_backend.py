"""Functions as backends that do what must not end the gateway, or return what is no embedding."""

import asyncio
import threading
from collections.abc import AsyncIterator
from math import inf, nan
from pathlib import Path

import pytest

from hocket.gateway.backends import function
from hocket.gateway.backends.function import FunctionBackend, imported
from hocket.gateway.backends.protocol import BackendReplyMalformed, FunctionFailed
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import RoutingInvalid
from hocket.schemas.messages import CallRequest, Completion

RAISED: list[BaseException] = []
NUMBERS: list[float] = []
CALL = CallRequest(
    call_id="c", model="m", messages=({"role": "user", "content": "x"},), deadline_at_ms=0
)


async def fails(_: CallRequest) -> Completion:
    raise RAISED[-1]


async def breaks_off(_: CallRequest) -> AsyncIterator[str]:
    yield "tid"
    raise RAISED[-1]


async def embeds(request: CallRequest) -> Completion:
    return Completion(embeddings=(tuple(NUMBERS),) * len(request.embed), input_tokens=5)


def backend(name: str) -> FunctionBackend:
    return FunctionBackend(BackendSpec("b", "function", f"{__name__}:{name}"))


@pytest.mark.parametrize("name", ["fails", "breaks_off"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
async def test_a_function_that_exits_has_failed(name: str, error: type[BaseException]) -> None:
    RAISED.append(error("bad prompt"))
    with pytest.raises(FunctionFailed, match="bad prompt") as failed:
        await backend(name).call(CALL, timeout_ms=60_000)
    assert failed.value.fields["exception"] == error.__name__


async def test_a_cancellation_passes_through_a_function() -> None:
    RAISED.append(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await backend("fails").call(CALL, timeout_ms=60_000)


@pytest.mark.parametrize(
    ("line", "error"),
    [("raise SystemExit('usage')", RoutingInvalid), ("raise KeyboardInterrupt", KeyboardInterrupt)],
)
def test_a_module_that_exits_is_refused_and_ctrl_c_is_not(
    line: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests_module_that_exits.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error):
        imported("tests_module_that_exits:model")


@pytest.mark.parametrize("number", [nan, inf, -inf, 1e39, -1e39])
async def test_embeddings_of_numbers_that_callers_cannot_get_are_malformed(number: float) -> None:
    NUMBERS[:] = [0.5, number]
    asked = CALL.model_copy(update={"messages": (), "embed": ("a", "b")})
    with pytest.raises(BackendReplyMalformed, match="finite") as failed:
        await backend("embeds").call(asked, timeout_ms=60_000)
    assert failed.value.spent.input_tokens == 5


@pytest.mark.parametrize("is_large", [False, True])
async def test_many_numbers_are_checked_in_a_thread(
    is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def look(_: object) -> bool:
        threads.append(threading.get_ident())
        return True

    monkeypatch.setattr(function, "are_vectors", look)
    NUMBERS[:] = [0.5] * (function.MANY_NUMBERS // 2 if is_large else 2)
    asked = CALL.model_copy(update={"messages": (), "embed": ("a", "b")})
    assert len((await backend("embeds").call(asked, timeout_ms=60_000)).embeddings) == 2
    assert (threads == [threading.get_ident()]) is not is_large
