"""The routes: a routing table with its backends built, read from the configuration and read again.

A file is read on start (a bad one ends the process), on SIGHUP, and when it has changed on disk and
changes no more (one that is being written may be empty, or half of itself); then a bad one changes
nothing, and is reported with the field and its cure.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from hocket.gateway.accounting.list_prices import with_list_prices
from hocket.gateway.config.backend_pool import ServedBackend, retire_missing, serve
from hocket.gateway.core.budgets import budget_rules
from hocket.gateway.core.budgets.budget_rules import NO_BUDGETS, BudgetRules
from hocket.gateway.core.config import hook_rules
from hocket.gateway.core.config.access import Access, parse_access
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.config.hook_rules import HookRule
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.content import policy
from hocket.gateway.core.content.policy import NOTHING_KEPT, ContentPolicy
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.experiments import experiments
from hocket.gateway.core.experiments.experiments import Experiment
from hocket.gateway.hooks.builder import BuiltHook, build
from hocket.kit.process import clock, config
from hocket.kit.process.lifecycle import Health
from hocket.schemas.checks.faults import Faults
from hocket.schemas.errors import HocketError

SECTIONS = frozenset({"models", "pools", "budgets", "access", "content", "experiments", "hooks"})
"""The sections of a configuration file that are read here."""
LITELLM_SECTIONS = frozenset(
    """
    model_list router_settings litellm_settings general_settings environment_variables callback_settings
    credential_list guardrails mcp_servers files_settings finetune_settings vector_store_registry prompts
    """.split()
)
"""The sections of a LiteLLM file; most have no effect here, which is said."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Routes:
    """A routing table, its backends by replica key, the budgets, the keys of the HTTP door, the
    experiments, the hooks, and whose content is kept; replaced as a whole on reload."""

    table: RoutingTable
    served: Mapping[str, ServedBackend]
    budgets: BudgetRules = NO_BUDGETS
    access: Access = field(default_factory=Access)
    experiments: tuple[Experiment, ...] = ()
    hooks: tuple[BuiltHook, ...] = ()
    content: ContentPolicy = NOTHING_KEPT


async def read_routes(path: Path | None, before: Routes | None = None) -> Routes:
    """Return the routes of a configuration file, or the built-in ones; raise RoutingInvalid."""
    content = await asyncio.to_thread(config.load, path)  # a large file takes seconds
    models, pools = _section(content), content.get("pools")
    faults = Faults(RoutingInvalid)
    with faults.part():
        table = await asyncio.to_thread(parse, models, os.environ, pools)
    with faults.part():
        budgets = budget_rules.read(content.get("budgets"), os.environ)
    with faults.part():
        access = parse_access(content.get("access"), os.environ)
    with faults.part():
        kept = policy.read(content.get("content"), os.environ)
    faults.check()
    table = await with_list_prices(table)
    with faults.part():
        tried = experiments.read(content.get("experiments"), os.environ, table)
    with faults.part():
        rules = hook_rules.read(content.get("hooks"), os.environ, table)
    faults.check()
    hooks = await _hooks(rules, before)
    for name in table.without_effect:
        log.warning("routing_field_without_effect", field=name)
    for entry in table.skipped:
        log.warning(
            "routing_entry_skipped",
            field=entry.field,
            model=entry.model,
            reason=f"the provider `{entry.provider}` is not reached here",
            cure="give the model an endpoint that speaks OpenAI's or Anthropic's API",
        )
    for spec in table.backends():
        if not spec.prices.priced:
            log.warning("backend_unpriced", backend=spec.key)
    served = await serve(table, before.served if before else {}, clock.now_ms)
    return Routes(table, served, budgets, access, tried, hooks, kept)


async def _hooks(rules: tuple[HookRule, ...], before: Routes | None) -> tuple[BuiltHook, ...]:
    """Return the hooks of some rules, those of before where the rules are the same; a hook may take long
    to make, so a thread does it."""
    if before is not None and tuple(one.rule for one in before.hooks) == rules:
        return before.hooks
    return await asyncio.to_thread(build, rules) if rules else ()


class Reload:
    """Reads the configuration again on SIGHUP and when the file changed; a bad one changes nothing."""

    def __init__(
        self, path: Path | None, routes: Routes, use: Callable[[Routes], None], health: Health
    ) -> None:
        self.routes = routes
        self._path = path
        self._use = use
        self._health = health
        self._reading: asyncio.Task[None] | None = None
        self._read_as = self._seen_as = _version(path)
        self._report()

    @contextmanager
    def on_hangup(self) -> Iterator[None]:
        """Listen to SIGHUP inside the block."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._start)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    def look(self) -> None:
        """Read the file again if it is not as it was read last, and is as it was at the last look."""
        version = _version(self._path)
        if version == self._seen_as and version != self._read_as:
            self._start()
        self._seen_as = version

    def _start(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self.read(), name="reload")

    async def read(self) -> None:
        """Replace the routes, or say why not."""
        self._read_as = _version(self._path)
        before = self.routes
        try:
            self.routes = await read_routes(self._path, before)
        except HocketError as error:
            log.warning("routing_rejected", path=str(self._path), reason=str(error))
            detail = f"old routes; reload refused: {error}"
            self._health.report("routing", True, detail, degraded=True)
            return
        self._use(self.routes)
        await retire_missing(before.served, self.routes.served)
        log.info("routing_reloaded", models=self.routes.table.names())
        self._report()

    def _report(self) -> None:
        self._health.report("routing", True, f"{len(self.routes.table.models)} models")


def _version(path: Path | None) -> tuple[int, int] | None:
    """Return what changes when a file does; None where there is none."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if found else None


def _section(content: Mapping[str, Any]) -> Any:
    """Return the routing part of a configuration; a LiteLLM file is one as a whole."""
    if "models" in content or "model_list" not in content:
        return content.get("models")
    return {name: value for name, value in content.items() if name in LITELLM_SECTIONS}
