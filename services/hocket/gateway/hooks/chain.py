"""The chain of hooks that a call passes through, and its answer on the way back.

Each hook has a time budget. If a hook fails or takes longer, the call is either ended (`closed`:
nothing leaves) or continues without it (`open`). Hooks run in configuration order on calls and in
reverse order on answers, and only for the backends and models they apply to (`builder.py`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.core.config.hook_rules import HookRule
from hocket.gateway.core.errors import USER_CODE_ERRORS, HookFailed
from hocket.gateway.hooks.builder import BuiltHook
from hocket.gateway.hooks.pii import Restored
from hocket.gateway.hooks.protocol import Answering
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.messages import CallRequest, Completion

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call as the backend gets it, and the handlers of its answer, in reverse order of the hooks."""

    request: CallRequest
    answering: tuple[tuple[HookRule, Callable[[], Answering]], ...] = ()


async def prepared(
    hooks: Sequence[BuiltHook], request: CallRequest, metrics: GatewayMetrics | None
) -> Prepared:
    """Return a call after all hooks; raise HookFailed if a closed hook fails."""
    answering: list[tuple[HookRule, Callable[[], Answering]]] = []
    for one in hooks:
        try:
            async with asyncio.timeout(one.rule.budget_ms / 1000):
                changed = await one.hook.before(request)
        except USER_CODE_ERRORS as error:
            _failed(one.rule, error, metrics)
            continue
        request = changed.request
        if changed.answering is not None:
            answering.insert(0, (one.rule, changed.answering))
    return Prepared(request, tuple(answering))


class Listening:
    """Passes the answer to one request through the hooks."""

    def __init__(self, prepared: Prepared, metrics: GatewayMetrics | None) -> None:
        self._answering = [(rule, make()) for rule, make in prepared.answering]
        self._metrics = metrics

    def relayed(self, chunks: Chunks) -> Chunks:
        """Return a receiver of a backend's chunks that passes them through the hooks to `chunks`."""

        async def take(chunk: Chunk) -> None:
            for rule, one in self._answering:
                try:
                    chunk = one.chunk(chunk)
                except USER_CODE_ERRORS as error:
                    _failed(rule, error, self._metrics)
            await chunks(chunk)

        return take

    async def finished(self, completion: Completion, chunks: Chunks | None) -> Completion:
        """Return the whole answer after all hooks, sending to `chunks` what they held back.

        Raises HookFailed if a closed hook fails.
        """
        for rule, one in self._answering:
            try:
                async with asyncio.timeout(_limit_s(rule, one)):
                    completion = await one.completion(completion)
                rest = one.rest() if chunks is not None else ""
            except USER_CODE_ERRORS as error:
                _failed(rule, error, self._metrics)
                continue
            if rest and chunks is not None:
                await chunks(Chunk(rest, output_tokens=completion.output_tokens))
        return completion


def _limit_s(rule: HookRule, answering: Answering) -> float | None:
    """Return the time limit of a hook for an answer; putting values back has none, because it ends by
    itself, and the answer is paid for."""
    return None if isinstance(answering, Restored) else rule.budget_ms / 1000


def _failed(rule: HookRule, error: BaseException, metrics: GatewayMetrics | None) -> None:
    """Log and count the failure of a hook; raise HookFailed if it is closed."""
    slow = isinstance(error, TimeoutError)
    reason = f"it took longer than {rule.budget_ms:g} ms" if slow else repr(error)[:200]
    if metrics is not None:
        metrics.hook_failures.labels(rule.use, rule.on_failure).inc()
    log.warning("hook_failed", hook=rule.use, on_failure=rule.on_failure, reason=reason)
    if rule.on_failure == "closed":
        raise HookFailed(hook=rule.use, reason=reason, component="gateway") from error
