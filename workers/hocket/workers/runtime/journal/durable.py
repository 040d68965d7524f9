"""Operations that a handler performs once per step, however often the step is attempted: `context.step`
and the like.

Each operation has a place in the handler: its ordinal within the current scope, and its name. If an
earlier attempt stored a result at that place, the result is returned and nothing is repeated. Concurrent
tasks have no fixed order, so each of them needs its own branch; operations inside a function that
`context.step` calls are numbered separately.
"""

import asyncio
import contextvars
import inspect
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pydantic import PrivateAttr
from pydantic_core import to_json

from hocket.kit.process.clock import now_ms
from hocket.schemas import ids
from hocket.schemas.journals import MAX_ENTRY_BYTES, MAX_ENTRY_NAME_CHARS, JournalEntry
from hocket.schemas.messages import StepRequested
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.subjects import TOKEN
from hocket.workers.runtime.execution.step_threads import Owner, StepThreads, last_of
from hocket.workers.runtime.journal.errors import (
    JournalFault,
    JournalFull,
    JournalMissing,
    OtherEventLoop,
    StepFailed,
)
from hocket.workers.runtime.journal.journal import Found, Journal, Place
from hocket.workers.runtime.journal.typed_values import adapter_of, fitted, read_back
from hocket.workers.runtime.journal.waits import Suspend, Waits
from hocket.workers.runtime.results.failures import error_info
from hocket.workers.runtime.results.large_outputs import apart
from hocket.workers.runtime.values.large_values import LargeValues

MAX_SCOPE_CHARS = 1_000

SCOPE: contextvars.ContextVar[str] = contextvars.ContextVar("hocket_journal_scope", default="")


Once = Callable[
    [str, str, Callable[[], Awaitable[tuple[Any, Decimal, bool]]]],
    Awaitable[tuple[Any, Found | None]],
]
"""Makes a call with that name and digest, unless the journal already has it."""


Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def _at_work(
    method: Callable[Concatenate["Durable", Given], Awaitable[Returned]],
) -> Callable[Concatenate["Durable", Given], Coroutine[Any, Any, Returned]]:
    """Keep an attempt from being suspended while a method of its context runs."""

    @wraps(method)
    async def at_work(self: "Durable", /, *args: Given.args, **kwargs: Given.kwargs) -> Returned:
        with self._working():
            return await method(self, *args, **kwargs)

    return at_work


class OwnStep(StepRequested):
    """The step of a context, which can be called besides."""

    _once: "weakref.WeakMethod[Callable[..., Awaitable[Any]]]" = PrivateAttr()

    def calls_by(self, once: "weakref.WeakMethod[Callable[..., Awaitable[Any]]]") -> None:
        """Make the step callable through a context, without keeping the context alive."""
        self._once = once

    async def __call__(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        returns: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once per step, whatever becomes of this attempt, and return its result.

        The result is stored as JSON, and read as `returns` or as the function's return annotation. If
        the function raises, StepFailed carries its error; the failure is stored once the handler
        continues past it. A call that is in progress when its worker dies is made again, so send the
        other system an idempotency key that names the step."""
        once = self._once()
        assert once is not None, "its attempt has ended"
        return await once(name, function, args, kwargs, returns)


class Durable:
    """The part of a handler's context that uses the journal, which `new_journal` makes on demand."""

    threads: StepThreads | None = None
    """Threads for functions that are not async."""
    journals_models = False
    """Whether model calls are journaled, as they are for user-written functions."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop on which the attempt runs; None if nothing can use the context on another one."""
    _made: Journal | None = None
    _randoms: Counter[str] | None = None
    _in_threads: Sequence[Future[Any]] = ()
    _owner: Owner | None = None
    """This attempt, as the threads know it."""
    _calls_inside: Sequence[JournalEntry] = ()
    """Model calls of functions that are not called again, whose cost this attempt reports."""

    def __init__(
        self,
        step: RequestedStep,
        new_journal: Callable[[], Journal] | None,
        values: LargeValues | None,
        suspend: Suspend | None = None,
        has_ended: Callable[[], bool] | None = None,
    ) -> None:
        self._step = step
        self._suspend = suspend
        self._has_ended = has_ended
        self._new_journal = new_journal if step.journal else None
        self._values = values

    @cached_property
    def _waits(self) -> Waits:
        """The waits of this attempt, created on first use: few handlers wait."""
        can_wait = self._step.journal and self._step.suspends
        suspend = self._suspend if can_wait else None
        return Waits(self._step.resumption, suspend, self._has_ended)

    def _working(self) -> AbstractContextManager[None]:
        """Keep the attempt from being suspended; raise OtherEventLoop on a loop of the handler's own."""
        if self.loop is not None and asyncio.get_running_loop() is not self.loop:
            raise OtherEventLoop
        return self._waits.working()

    @property
    def left_behind(self) -> Future[Any] | None:
        """What still runs in threads for this attempt, which cannot be stopped, or None. The slot stays
        taken until it ends."""
        return last_of(self._in_threads) if self._in_threads else None

    def runs_in_thread(self, work: Future[Any]) -> None:
        """Note work of this attempt that cannot be stopped."""
        self._in_threads = [*(one for one in self._in_threads if not one.done()), work]

    @cached_property
    def step(self) -> OwnStep:
        """The step's request as it arrived. It is also callable: `await context.step("name", function,
        ...)` calls a function once per step (`OwnStep.__call__`)."""
        own = OwnStep.model_construct(**self._step.contract_fields())
        own.calls_by(weakref.WeakMethod(self._step_once))
        return own

    @_at_work
    async def _step_once(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, returns: Any
    ) -> Any:
        journal = self._journal
        place = journal.place(SCOPE.get(), "step", name_of(name))
        adapter = adapter_of(function, returns)
        found = await journal.find(place)
        if found is not None:
            self._calls_inside = (*self._calls_inside, *found.inside)
            if found.entry.error is not None:
                raise StepFailed(found.entry.name, found.entry.error)
            return fitted(
                found.entry,
                await self._resolved(found.entry.value, large=found.entry.large),
                adapter,
            )
        started_at_ms = now_ms()
        try:
            given = await self._called(place, function, args, kwargs)
            read = partial(read_back, name, adapter=adapter)
            value, result, size_bytes = await apart(given, read)
        except JournalFault:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # it would end the whole worker
            failed = error_info(error)
            journal.failed(place.entry(started_at_ms, error=failed))
            raise StepFailed(name, failed) from error
        await self._record(place, started_at_ms, value, size_bytes)
        return result

    @_at_work
    async def now(self) -> datetime:
        """Return the current time (UTC) of the first call; the same value in all attempts."""
        journal = self._journal
        place = journal.place(SCOPE.get(), "now", "now")
        found = await journal.find(place)
        at_ms = now_ms() if found is None else float(found.entry.value)
        if found is None:
            await journal.record(place.entry(at_ms, at_ms))
        return datetime.fromtimestamp(at_ms / 1000, UTC)

    def random(self) -> float:
        """Return a number in [0, 1), the same in all attempts.

        It is not secret, because it is derived from the names of the run and the step."""
        self._randoms = self._randoms or Counter()
        scope = SCOPE.get()
        self._randoms[scope] += 1
        number = str(self._randoms[scope])
        return ids.fraction(self._step.run_id, self._step.step, "random", scope, number)

    @contextmanager
    def branch(self, name: str) -> Iterator[None]:
        """Number the journaled operations of the block separately. Each of several concurrent tasks
        needs a branch of its own. Raises ValueError if the name is empty, or has `/` or a leading
        `#`."""
        if not name or "/" in name or name.startswith("#"):
            raise ValueError(f"`{name}` cannot name a branch: it is empty, or contains `/` or `#`")
        token = SCOPE.set(_below(SCOPE.get(), name_of(name)))
        try:
            yield
        finally:
            SCOPE.reset(token)

    @property
    def _journal(self) -> Journal:
        if self._made is None:
            if self._new_journal is None or not TOKEN.fullmatch(self._step.run_id):
                raise JournalMissing
            self._made = self._new_journal()
            self._waits.use(self._made)
        return self._made

    @property
    def _models_once(self) -> Once | None:
        """The function that makes a model call once, or None if model calls are not journaled."""
        return self._once if self.journals_models and self._new_journal is not None else None

    async def _once(
        self,
        name: str,
        digest: str,
        do: Callable[[], Awaitable[tuple[Any, Decimal, bool]]],
    ) -> tuple[Any, Found | None]:
        """Return the JSON value of a model call and the entry that it came from, if any. `do` makes the
        call if the journal does not have it, and returns its value, its cost, and whether it failed."""
        journal = self._journal
        place = journal.place(SCOPE.get(), "model", name, digest)
        found = await journal.find(place)
        if found is not None:
            return await self._resolved(found.entry.value, large=found.entry.large), found
        started_at_ms = now_ms()
        value, cost_usd, has_failed = await do()
        if has_failed:
            journal.failed(place.entry(started_at_ms, value, cost_usd=cost_usd))
        else:
            size_bytes = len(to_json(value))
            await self._record(place, started_at_ms, value, size_bytes, cost_usd)
        return value, None

    async def _called(
        self, place: Place, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Call a function in a scope of its own."""
        token = SCOPE.set(_below(place.scope, f"#{place.ordinal}"))
        try:
            if inspect.iscoroutinefunction(function) or self.threads is None:
                given = function(*args, **kwargs)
            else:
                frame = contextvars.copy_context()
                call = partial(frame.run, partial(function, *args, **kwargs))
                self._owner = self._owner or Owner(self._step.tenant)
                work = self.threads.beside.start(call, owner=self._owner)
                self.runs_in_thread(work)
                outcome = await asyncio.wrap_future(work)
                if outcome.error is not None:
                    raise outcome.error
                given = outcome.value
            return await given if inspect.isawaitable(given) else given
        finally:
            SCOPE.reset(token)

    async def _record(
        self,
        place: Place,
        started_at_ms: float,
        value: Any,
        size_bytes: int,
        cost_usd: Decimal = Decimal(0),
    ) -> None:
        large = size_bytes > MAX_ENTRY_BYTES
        if large:
            if self._values is not None:
                excess_bytes = size_bytes - MAX_ENTRY_BYTES // 2
                value = await self._values.spilled(self._step.tenant, value, excess_bytes)
            if len(to_json(value)) > MAX_ENTRY_BYTES:
                limit = f"the limit is {MAX_ENTRY_BYTES}, and there are no blobs"
                raise JournalFull(
                    reason=f"what `{place.name}` returned has {size_bytes} bytes; {limit}"
                )
        entry = place.entry(started_at_ms, value, large=large, cost_usd=cost_usd)
        await self._journal.record(entry)

    async def _resolved(self, value: Any, *, large: bool = True) -> Any:
        """Return a value with its blob references resolved, if it is a large one."""
        if not large or self._values is None:
            return value
        journal = self._journal
        async with (
            journal.resolving
        ):  # one by one, so that the second knows that the first has room
            waits = journal.hold(0) == 0
            value, held_bytes = await self._values.resolved(self._step.tenant, value, waits=waits)
            if journal.hold(held_bytes) is None:  # a task that the handler left behind
                self._values.room.give_back(self._step.tenant, held_bytes)
        return value


def name_of(name: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ENTRY_NAME_CHARS:
        raise ValueError(f"a name must have 1 to {MAX_ENTRY_NAME_CHARS} characters")
    if not name.isprintable():
        raise ValueError("a name must not have control characters")
    return name


def is_inside(place: Place) -> bool:
    """Tell whether a place is inside a function that `context.step` calls."""
    return any(part.startswith("#") for part in place.scope.split("/"))


def _below(scope: str, name: str) -> str:
    scope = f"{scope}{name}/"
    if len(scope) > MAX_SCOPE_CHARS:
        raise ValueError(f"branches nest deeper than {MAX_SCOPE_CHARS} characters")
    return scope
