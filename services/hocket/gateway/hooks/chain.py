"""Hooks: what happens to a call before a backend gets it, and to its answer before the caller does.

A hook is made from `use`: a built-in one (`pii`, `presidio`) or `module:factory` of the user's, called
with its options. Each has a time budget. One that fails or takes longer either ends the call (`closed`:
nothing leaves) or is left out (`open`). Hooks run in the order of the configuration, on answers in the
opposite one, and only for the backends and models that they are for.
"""

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.core.config.hook_rules import HookRule
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import HookFailed, RoutingInvalid
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallRequest, Completion

log = structlog.get_logger()


class Answering(Protocol):
    """What a hook does with the answer to one request. In a stream `chunk` gets each piece, `rest` says
    what was held back at the end, and the whole comes to `completion` all the same."""

    def chunk(self, chunk: Chunk) -> Chunk: ...

    def rest(self) -> str: ...

    async def completion(self, completion: Completion) -> Completion: ...


@dataclass(frozen=True, slots=True)
class Changed:
    """The call as the next hook, or the backend, gets it; `answering` makes what sees the answer, anew
    for each request, where the hook wants to see it."""

    request: CallRequest
    answering: Callable[[], Answering] | None = None


class Hook(Protocol):
    """What users implement."""

    async def before(self, request: CallRequest) -> Changed:
        """Return the call as it may go out; raise to refuse it."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltHook:
    """A hook with its rule."""

    rule: HookRule
    hook: Hook


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call as a backend gets it, and what sees its answer, the first hook last."""

    request: CallRequest
    answering: tuple[tuple[HookRule, Callable[[], Answering]], ...] = ()


def build(rules: Sequence[HookRule]) -> tuple[BuiltHook, ...]:
    """Return the hooks of a configuration; raise RoutingInvalid where one cannot be made."""
    return tuple(BuiltHook(rule, _made(rule)) for rule in rules)


def hooks_for(
    hooks: Sequence[BuiltHook], spec: BackendSpec, models: Set[str]
) -> tuple[BuiltHook, ...]:
    """Return the hooks that a call goes through to a backend; it goes by any of these models' names."""
    return tuple(one for one in hooks if one.rule.concerns(spec.hosting, spec.kind, models))


async def prepared(
    hooks: Sequence[BuiltHook], request: CallRequest, metrics: GatewayMetrics | None
) -> Prepared:
    """Return a call as it may go out; raise HookFailed where a closed hook does not let it."""
    answering: list[tuple[HookRule, Callable[[], Answering]]] = []
    for one in hooks:
        try:
            async with asyncio.timeout(one.rule.budget_ms / 1000):
                changed = await one.hook.before(request)
        except Exception as error:
            _failed(one.rule, error, metrics)
            continue
        request = changed.request
        if changed.answering is not None:
            answering.insert(0, (one.rule, changed.answering))
    return Prepared(request, tuple(answering))


class Listening:
    """What hooks do with the answer to one request."""

    def __init__(self, prepared: Prepared, metrics: GatewayMetrics | None) -> None:
        self._answering = [(rule, make()) for rule, make in prepared.answering]
        self._metrics = metrics

    def relayed(self, chunks: Chunks) -> Chunks:
        """Return what takes a backend's chunks and hands them on as the hooks leave them."""

        async def take(chunk: Chunk) -> None:
            for rule, one in self._answering:
                try:
                    chunk = one.chunk(chunk)
                except Exception as error:
                    _failed(rule, error, self._metrics)
            await chunks(chunk)

        return take

    async def finished(self, completion: Completion, chunks: Chunks | None) -> Completion:
        """Return the whole answer as the hooks leave it, and say what they held back; raise HookFailed
        where a closed hook fails."""
        for rule, one in self._answering:
            try:
                async with asyncio.timeout(rule.budget_ms / 1000):
                    completion = await one.completion(completion)
                rest = one.rest() if chunks is not None else ""
            except Exception as error:
                _failed(rule, error, self._metrics)
                continue
            if rest and chunks is not None:
                await chunks(Chunk(rest, output_tokens=completion.output_tokens))
        return completion


def _failed(rule: HookRule, error: Exception, metrics: GatewayMetrics | None) -> None:
    """Note that a hook failed; raise HookFailed where it is closed."""
    slow = isinstance(error, TimeoutError)
    reason = f"it took longer than {rule.budget_ms:g} ms" if slow else repr(error)[:200]
    if metrics is not None:
        metrics.hook_failures.labels(rule.use, rule.on_failure).inc()
    log.warning("hook_failed", hook=rule.use, on_failure=rule.on_failure, reason=reason)
    if rule.on_failure == "closed":
        raise HookFailed(hook=rule.use, reason=reason, component="gateway") from error


def _made(rule: HookRule) -> Hook:
    factory = _BUILT_IN.get(rule.use)
    try:
        return (factory or _imported(rule.use))(rule.options)
    except HocketError:
        raise
    except Exception as error:
        cure = "Mend it, or remove the hook."
        reason = f"`{rule.use}` cannot be made: {error!r}"
        raise RoutingInvalid(field=rule.where, reason=reason, cure=cure) from error


def _imported(use: str) -> Callable[[Mapping[str, Any]], Hook]:
    module, _, name = use.partition(":")
    factory: Callable[[Mapping[str, Any]], Hook] = getattr(importlib.import_module(module), name)
    return factory


def _pii(options: Mapping[str, Any]) -> Hook:
    from hocket.gateway.hooks.pii import PiiHook

    return PiiHook(options)


def _presidio(options: Mapping[str, Any]) -> Hook:
    from hocket.gateway.hooks.presidio import PresidioHook

    return PresidioHook(options)


_BUILT_IN: Mapping[str, Callable[[Mapping[str, Any]], Hook]] = {
    "pii": _pii,
    "presidio": _presidio,
}
