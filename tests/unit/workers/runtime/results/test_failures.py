"""Exceptions of handlers as typed errors, and what JetStream says about a delivery."""

from collections.abc import Callable
from typing import Any

import pytest

from hocket.kit.logs import hidden_secrets
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import AttemptFinished
from hocket.schemas.structs.results import FinishedAttempt
from hocket.workers.errors import Retryable, StepUndeliverable
from hocket.workers.runtime.intake.undeliverable import Name, name_of
from hocket.workers.runtime.journal.errors import JournalUnavailable
from hocket.workers.runtime.results.encoding import encode
from hocket.workers.runtime.results.failures import MAX_FRAMES, error_info


class RateLimited(HocketError):
    """`{model}` is asked too often."""

    code = "rate_limited"
    error_class = ErrorClass.TRANSIENT
    retryable = True


def raised(error: BaseException) -> ErrorInfo:
    def fail(depth: int) -> None:
        if depth:
            fail(depth - 1)
        raise error

    with pytest.raises(type(error)) as caught:
        fail(10)
    return error_info(caught.value)


@pytest.mark.parametrize(
    ("error", "error_class", "retryable"),
    [
        (ValueError("bad"), ErrorClass.PERMANENT, False),
        (KeyError("k"), ErrorClass.PERMANENT, False),
        (SystemExit(1), ErrorClass.PERMANENT, False),
        (ConnectionResetError("gone"), ErrorClass.TRANSIENT, True),
        (TimeoutError(), ErrorClass.TRANSIENT, True),
        (OSError(28, "disk full"), ErrorClass.TRANSIENT, True),
    ],
)
def test_an_exception_is_classed_by_its_type(
    error: BaseException, error_class: ErrorClass, retryable: bool
) -> None:
    info = raised(error)
    assert (info.code, info.error_class, info.retryable) == (
        "handler_failed",
        error_class,
        retryable,
    )


def test_a_group_of_exceptions_is_the_error_that_decides() -> None:
    refused = RateLimited(model="m")
    away = JournalUnavailable(reason="no answer")
    for errors, code, retryable in (
        ([Retryable("later")], "retryable", True),
        ([ExceptionGroup("inner", [Retryable("later")])], "retryable", True),
        ([ConnectionResetError("gone")], "handler_failed", True),
        ([Retryable("later"), ValueError("bad")], "handler_failed", False),
        ([ValueError("bad"), away], "journal_unavailable", True),
        ([refused], "rate_limited", True),
    ):
        info = raised(ExceptionGroup("unhandled errors in a TaskGroup", errors))
        assert (info.code, info.retryable) == (code, retryable)
    assert "ValueError: bad" in raised(ExceptionGroup("group", [ValueError("bad")])).message


class Refused(HocketError):
    """The server refused: {reason}."""

    code = "refused"


@pytest.mark.parametrize("secret", ["sk-0123456789", 'quoted "and\\ \u00e4-012'])
@pytest.mark.parametrize("kind", [ValueError, lambda text: Refused(reason=text, told=[text])])
def test_a_secret_of_the_process_that_an_error_repeats_is_hidden(
    secret: str, kind: Callable[[str], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_secrets, "_hidden", [])
    hidden_secrets.hide([secret])
    try:
        info = error_info(kind(f"`{secret}` is not a key"))
        assert "`***` is not a key" in info.message
        assert secret not in repr(info)
        assert info.code in ("handler_failed", "refused")
    finally:
        hidden_secrets._redactor.cache_clear()


def test_the_last_frames_tell_where_a_handler_failed() -> None:
    frames = raised(ValueError("bad")).details["frames"]
    assert len(frames) == MAX_FRAMES
    assert frames[-1].endswith(" fail")


def test_a_typed_error_keeps_its_code_and_gains_a_component() -> None:
    info = raised(Retryable("the upstream is reindexing"))
    assert (info.code, info.error_class, info.component) == (
        "retryable",
        ErrorClass.TRANSIENT,
        "worker",
    )
    assert "reindexing" in info.message


def test_an_error_names_its_cure() -> None:
    assert (
        "look for a handler that kills its process"
        in StepUndeliverable(deliveries=20).info().message
    )


def test_the_name_of_a_step_is_read_that_nests_deeper_than_messages_may() -> None:
    body = b'{"run_id": "r", "step": "s", "attempt": 1, "input": %b1%b, "partition": 2}'
    assert name_of(body % (b"[" * 300, b"]" * 300)) == Name(
        run_id="r", step="s", attempt=1, partition=2
    )
    assert name_of(body % (b"[" * 100_000, b"]" * 100_000)) is None


def test_the_name_of_a_broken_step_is_read_where_it_can_be() -> None:
    body = b'{"run_id": "r", "step": "s", "attempt": 1, "partition": 2, "input": null}'
    assert name_of(body) == Name(run_id="r", step="s", attempt=1, partition=2)


@pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b'{"run_id": "r"}', b'{"run_id": 5}'])
def test_a_step_without_a_name_has_none(body: bytes) -> None:
    assert name_of(body) is None


def hostile() -> BaseException:
    """Return an exception that answers nothing about itself."""

    class Hostile(Exception):
        def __str__(self) -> str:
            raise SystemExit("no")

        @property
        def __class__(self) -> Any:
            raise KeyboardInterrupt

    return Hostile()


def wordless() -> BaseException:
    return type("Wordless", (Exception,), {"__str__": lambda self: 7, "__module__": 7})()


def nameless() -> BaseException:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if name in ("__name__", "__qualname__", "__module__"):
                raise SystemExit("no name")
            return super().__getattribute__(name)

    return Meta("Nameless", (Exception,), {})("x")


class Untrue(HocketError):
    """Untrue."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.given = given

    def info(self) -> ErrorInfo:
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given  # type: ignore[no-any-return]


DEEP: list[Any] = []
DEEP.append(DEEP)
UNCHECKED = ErrorInfo.model_construct(code=7, message=None, error_class="x", details=None)
INFO = ErrorInfo(code="c", message="m")


@pytest.mark.parametrize(
    "make",
    [
        hostile,
        wordless,
        nameless,
        lambda: ValueError("x" * 10_000_000),
        lambda: ValueError("a\x00b\ud800c"),
        lambda: ValueError(DEEP),
        lambda: BaseException("base"),
        lambda: GeneratorExit(),
        lambda: KeyboardInterrupt(),
        lambda: ExceptionGroup("g", [ValueError("x")] * 1000),
        lambda: Untrue(None),
        lambda: Untrue({"code": "x"}),
        lambda: Untrue(SystemExit(1)),
        lambda: Untrue(RecursionError()),
        lambda: Untrue(UNCHECKED),
        lambda: Untrue(INFO.model_copy(update={"details": {"deep": DEEP}})),
        lambda: Untrue(INFO.model_copy(update={"details": {"large": "x" * 10_000_000}})),
        lambda: Untrue(INFO.model_copy(update={"details": {"a": object(), "nul": "\x00\ud800"}})),
        lambda: Untrue(
            INFO.model_copy(update={"message": "m\x00" * 1_000_000, "code": "c" * 50_000})
        ),
        lambda: Retryable("r" * 10_000_000),
    ],
    ids=range(20),
)
def test_an_exception_that_is_hostile_is_one_small_error(
    make: Callable[[], BaseException],
) -> None:
    info = error_info(make())
    assert type(info) is ErrorInfo
    payload = encode(FinishedAttempt("r", "s", 1, worker="w"), error=info)
    assert len(payload) < 64 * 1024
    for bad in (b"\\u0000", b"\xed\xa0"):
        assert bad not in payload
    assert AttemptFinished.model_validate_json(payload).error is not None
