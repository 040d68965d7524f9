"""Write node types as FastStream subscribers: `@hocket_step(broker, "crm.lookup")`.

FastStream calls the handler, with its dependencies, middlewares and publishers. The worker runtime
fetches steps, keeps them alive, stops them and reports their results, over a connection of its own. So
no more steps are fetched than may run at once, and a step is acknowledged only after its result. A
handler's message is the step's input as JSON. Needs `faststream[nats]`, 0.7.8 or a later 0.7 release.
"""

import asyncio
import inspect
import threading
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from functools import wraps
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

import structlog
from fast_depends.dependencies import Dependant
from fast_depends.library import CustomField
from faststream import AckPolicy
from faststream import Context as FromContext
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage
from faststream.nats import NatsBroker, NatsRouter
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from hocket.kit.process.clock import now_ms
from hocket.schemas import ids
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.messages import CallReply, CallRequest, Priority
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.subjects import DEFAULT_QUEUE, pool_token
from hocket.worker.node_type import NodeType
from hocket.worker.worker import DEFAULT_CONCURRENCY, Worker, price_of
from hocket.workers.errors import Retryable
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import Function
from hocket.workers.runtime.models.calls import Calls

CONTEXT = "hocket"
"""The name of the attempt in FastStream's context."""
StepContext = Annotated[Context, FromContext(CONTEXT, cast=False)]
"""Annotate a handler's parameter with this to receive the attempt: step, time, log, models, journal."""
StepConfig = Annotated[dict[str, Any], FromContext(f"{CONTEXT}.config", cast=False)]
"""Annotate a handler's parameter with this to receive the `config` of its node."""
TEST_TIMEOUT_MS = 30_000.0
"""The timeout of the steps that `run_step` makes."""

F = TypeVar("F", bound=Callable[..., Any])
log = structlog.get_logger(__name__)


class StepRejected(HocketError):
    """The handler rejected the step (`RejectMessage`)."""

    code = "step_rejected"
    error_class = ErrorClass.PERMANENT


def hocket_step(
    broker: NatsBroker | NatsRouter,
    type: str,  # noqa: A002 (the word of the pipeline's field)
    *,
    version: str = "1",
    queues: Sequence[str] = (DEFAULT_QUEUE,),
    concurrency: int = DEFAULT_CONCURRENCY,
    timeout_ms: float | None = None,
    effects: Literal["none", "external"] = "none",
    usd_per_second: Decimal | str | None = None,
    description: str | None = None,
    nats_url: str | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Make a function the handler of a node type and a subscriber of the broker; raise NodeTypeInvalid
    if it cannot be one.

    `options` are passed to `broker.subscriber` (`dependencies`, `parser`, `decoder`, `title` ...); the
    named parameters are those of `hocket.worker.Worker.node`. Steps are fetched from the broker's
    server, with its credentials, unless `nats_url` names another one."""

    def add(function: F) -> F:
        subject = f"hocket.step.{pool_token(type)}.*"
        options.setdefault("description", description)
        subscriber = broker.subscriber(
            subject, ack_policy=AckPolicy.MANUAL, no_reply=True, **options
        )
        taken = _taken(function)
        step = _Step(subscriber, function.__name__, takes_all=len(taken) == 1)
        call = _described(type, function, taken, step.run)
        node_type = NodeType(
            name=type,
            function=call,
            version=version,
            concurrency=concurrency,
            timeout_ms=timeout_ms,
            effects=effects,
            usd_per_second=price_of(type, usd_per_second),
            description=description,
        )
        _group_of(broker).add(step, node_type, tuple(queues), nats_url)
        if not inspect.iscoroutinefunction(function):
            return typing.cast(F, subscriber(_noted(function)))
        return typing.cast(F, subscriber(function))

    return add


async def run_step(
    broker: NatsBroker | NatsRouter,
    type: str,  # noqa: A002
    given: Any = None,
    *,
    config: Mapping[str, Any] | None = None,
    attempt: int = 1,
    calls: Calls | None = None,
    **fields: Any,
) -> Any:
    """Run a handler on a made-up step, as a worker would, and return its output.

    For tests, inside `TestNatsBroker(broker)`. `fields` sets further fields of the step; `calls` answers
    model calls, which otherwise raise ModelsMissing."""
    step = _group_of(broker).steps[type]
    request = RequestedStep(
        **{
            "run_id": "test", "tenant": "test", "pipeline": "test", "version": 1, "step": "step",
            "node": "step", "type": type, "attempt": attempt, "input": given,
            "config": dict(config or {}), "deadline_at_ms": now_ms() + TEST_TIMEOUT_MS,
            "slack_ms": 0.0, "timeout_ms": TEST_TIMEOUT_MS, "priority": Priority.STANDARD,
            "partition": 0, "epoch": 0,
        }
        | fields
    )  # fmt: skip
    context = Context(
        request,
        given,
        attempt_id=ids.attempt_id(request.run_id, request.step, request.attempt),
        delivery=1,
        deadline_at_ms=request.deadline_at_ms,
        calls=calls or _NoCalls(),
    )
    return await step.run(context)


@dataclass(eq=False)
class _Step:
    """A subscriber that a worker calls. `name` is the name of its function, which takes the whole input
    as one parameter (`takes_all`) or the input's fields as several."""

    subscriber: Any
    name: str
    takes_all: bool

    async def run(self, context: Context) -> Any:
        """Have the subscriber process a step's input, and return its handler's output."""
        context.loop = asyncio.get_running_loop()
        headers = {
            "content-type": "application/json",
            "correlation_id": context.step.run_id,
            "message_id": context.attempt_id,
            "traceparent": context.traceparent,
        }
        subject = self.subscriber.subject.broker_address.replace("*", "normal")
        message = Msg(
            typing.cast(Client, None), subject, data=to_json(context.input), headers=headers
        )
        message._ackd = True
        scope = self.subscriber._outer_config.context.scope(CONTEXT, context)
        with _noting(context), scope:
            try:
                answer = await self.subscriber.process_message(message)
            except (AckMessage, SkipMessage):
                return None
            except NackMessage as error:
                raise Retryable("the handler gave the message back (NackMessage)") from error
            except RejectMessage as error:
                raise StepRejected from error
            except ValidationError as error:
                if error.title != self.name:  # raised inside the handler, not by its input
                    raise
                raise _invalid(error, 1 if self.takes_all else 0) from None
        return answer.body


class _Noting:
    """Tells an attempt of its handler's calls in FastStream's threads, which cannot be stopped: its slot
    stays taken until they end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_over = False
        self._lock = threading.Lock()

    def begin(self) -> "Future[None] | None":
        """Return the future of a call that begins, in its thread; None if the attempt is over."""
        with self._lock:
            if self._is_over:
                return None
            work: Future[None] = Future()
            self._context.runs_in_thread(work)
            return work

    def end(self) -> None:
        """Let no more calls begin."""
        with self._lock:
            self._is_over = True


_NOTING: ContextVar[_Noting | None] = ContextVar("hocket_faststream_noting", default=None)


@contextmanager
def _noting(context: Context) -> Iterator[None]:
    noting = _Noting(context)
    token = _NOTING.set(noting)
    try:
        yield
    finally:
        noting.end()
        _NOTING.reset(token)


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that tells the attempt that calls it, if one does, until when it runs."""

    @wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        noting = _NOTING.get()
        if noting is None:
            return function(*args, **kwargs)
        work = noting.begin()
        if work is None:  # nobody waits for it
            return None
        try:
            return function(*args, **kwargs)
        finally:
            work.set_result(None)

    return noted


@dataclass(eq=False)
class _Group:
    """The steps of one broker. Their workers start once all the subscribers have been started, and drain
    before the first subscriber is stopped."""

    steps: dict[str, _Step] = field(default_factory=dict)
    _waiting: list[tuple[_Step, NodeType, tuple[str, ...]]] = field(default_factory=list)
    _started: set[_Step] = field(default_factory=set)
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)
    _draining: "asyncio.Task[None] | None" = None
    _nats_url: str | None = None

    def add(
        self, step: _Step, node_type: NodeType, queues: tuple[str, ...], nats_url: str | None
    ) -> None:
        """Add a step, and take over its subscriber's start and stop."""
        node_type.check()
        if node_type.name in self.steps:
            raise node_type.invalid("the broker already has it", "Register each type only once.")
        self._nats_url = nats_url or self._nats_url
        self.steps[node_type.name] = step
        self._waiting.append((step, node_type, queues))
        subscriber, stop = step.subscriber, step.subscriber.stop

        async def started() -> None:
            self._started.add(step)
            if all(one in self._started for one, _, _ in self._waiting):
                await self._start()

        async def stopped() -> None:
            await self._drain()
            await stop()

        subscriber._create_subscription = started  # otherwise FastStream subscribes to the subject
        subscriber.stop = stopped

    async def _start(self) -> None:
        by_queues: dict[tuple[str, ...], Worker] = {}
        for _, node_type, queues in self._waiting:
            if queues not in by_queues:
                by_queues[queues] = Worker(queues=queues)
            by_queues[queues].add(node_type)
        subscriber = self._waiting[0][0].subscriber
        url = self._nats_url or _url_of(subscriber.connection)
        self._draining = None
        for worker in by_queues.values():
            running = await self._running.enter_async_context(worker.run(nats_url=url))
            watching = asyncio.create_task(_exit_when_overrun(running.overrun, subscriber))
            self._running.callback(watching.cancel)

    async def _drain(self) -> None:
        """Drain the workers, once for all callers."""
        if self._draining is None:
            self._started.clear()
            self._draining = asyncio.create_task(self._running.aclose(), name="hocket drain")
        await asyncio.shield(self._draining)


def _group_of(broker: NatsBroker | NatsRouter) -> _Group:
    group = vars(broker).setdefault("_hocket_steps", _Group())
    assert isinstance(group, _Group)
    return group


async def _exit_when_overrun(overrun: asyncio.Event, subscriber: Any) -> None:
    await overrun.wait()
    app = subscriber._outer_config.context.get("app")
    log.error("worker_overrun", cure="The process should start anew.", ends=app is not None)
    if app is not None:
        app.exit()


class ModelsMissing(HocketError):
    """`run_step` has no model `{model}`. Pass `calls`, which answers for models."""

    code = "models_missing"


class _NoCalls:
    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        raise ModelsMissing(model=request.model, traced=headers is not None)


def _url_of(client: Client) -> str:
    """Return the URL of the server that a client is connected to, with the credentials that it used."""
    place = client.connected_url
    assert place is not None, "the broker connects before its subscribers start"
    if "@" in place.netloc:
        return place.geturl()
    options = client.options
    user, password, token = (options.get(name) for name in ("user", "password", "token"))
    shown = quote(token or user or "", safe="")
    if user and password:
        shown = f"{shown}:{quote(password, safe='')}"
    return f"{place.scheme}://{shown + '@' if shown else ''}{place.netloc}"


def _taken(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters that are filled from the message, each with its annotation and default."""
    hints = typing.get_type_hints(function, include_extras=True)
    return {
        parameter.name: (
            hints.get(parameter.name, Any),
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in inspect.signature(function).parameters.values()
        if not _is_injected(parameter, hints.get(parameter.name))
    }


def _described(
    name: str, function: Callable[..., Any], taken: dict[str, Any], run: Callable[..., Any]
) -> Function:
    """Return the function that runs steps, with the schemas of the handler's input and output."""
    whole: Any = Any
    if len(taken) == 1:
        ((whole, _),) = taken.values()
    elif taken:
        whole = create_model(name.rpartition(".")[2].title(), **taken)
    adapters: dict[Any, TypeAdapter[Any]] = {}
    if whole not in (Any, object):
        try:
            adapters["input"] = TypeAdapter(whole)
        except PydanticUserError as error:
            log.info("input_not_described", type=name, reason=error.message)

    async def call(context: Context) -> Any:
        return await run(context)

    call.__doc__ = function.__doc__
    returns = typing.get_type_hints(function, include_extras=True).get("return", Any)
    return Function(name, call, ("context",), True, adapters, returns)


def _is_injected(parameter: inspect.Parameter, annotation: Any) -> bool:
    """Tell whether FastStream fills a parameter from something other than the message."""
    kinds = (Dependant, CustomField)
    extras = (*getattr(annotation, "__metadata__", ()), parameter.default)
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return variadic or any(isinstance(one, kinds) for one in extras)


def _invalid(error: ValidationError, within: int) -> InvalidInput:
    """Return the error of an invalid input, without the first `within` parts of pydantic's path."""
    fault = first_fault(error)
    place = ".".join(("input", *map(str, tuple(fault.place)[within:])))
    return InvalidInput(field=place, reason=fault.reason, cure=_CURE)


_CURE = "Give the node the input that its handler takes."
