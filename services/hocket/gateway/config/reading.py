"""Reads a configuration file into routes; reports all its faults at once, each with field and cure."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from hocket.gateway.accounting.list_prices import with_list_prices
from hocket.gateway.config.backend_pool import serve
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.budgets import budget_rules
from hocket.gateway.core.config import hook_rules
from hocket.gateway.core.config.access import parse_access
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.core.config.hook_rules import HookRule
from hocket.gateway.core.content import policy
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.core.experiments.arm_choice import read as read_experiments
from hocket.gateway.core.rates import rules as rate_rules
from hocket.gateway.hooks.builder import BuiltHook, build
from hocket.kit.process import clock, config
from hocket.schemas.checks.faults import Faults

SECTIONS = frozenset(
    {"models", "pools", "budgets", "access", "content", "experiments", "hooks", "rates"}
)
"""The sections of a configuration file read here."""
LITELLM_SECTIONS = frozenset(
    """
    model_list router_settings litellm_settings general_settings environment_variables callback_settings
    credential_list guardrails mcp_servers files_settings finetune_settings vector_store_registry prompts
    """.split()
)
"""The sections of a LiteLLM file; most have no effect here, which is reported."""

log = structlog.get_logger()


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
    with faults.part():
        rates = rate_rules.read(content.get("rates"), os.environ)
    faults.check()
    table = await with_list_prices(table)
    with faults.part():
        tried = read_experiments(content.get("experiments"), os.environ, table)
    with faults.part():
        rules = hook_rules.read(content.get("hooks"), os.environ, table)
    with faults.part():
        rates = rate_rules.of_models(rates, table)
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
    return Routes(table, served, budgets, access, tried, hooks, kept, rates)


async def _hooks(rules: tuple[HookRule, ...], before: Routes | None) -> tuple[BuiltHook, ...]:
    """Return the hooks of the rules, reusing the former ones if the rules are unchanged.

    Hooks are built in a thread, because that may take long.
    """
    if before is not None and tuple(one.rule for one in before.hooks) == rules:
        return before.hooks
    return await asyncio.to_thread(build, rules) if rules else ()


def _section(content: Mapping[str, Any]) -> Any:
    """Return the routing section of a configuration; for a LiteLLM file, the whole file."""
    if "models" in content or "model_list" not in content:
        return content.get("models")
    return {name: value for name, value in content.items() if name in LITELLM_SECTIONS}
