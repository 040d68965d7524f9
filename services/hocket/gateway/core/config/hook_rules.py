"""Which hooks a call passes through, as given in the section `hooks:` of the configuration."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal

from hocket.gateway.core.config.fields import Fields, wrong
from hocket.gateway.core.config.table import BackendKind, Hosting, RoutingTable

MAX_HOOKS = 16
BUILT_IN = ("pii", "presidio")
USUAL_BUDGET_MS = 50.0
MAX_BUDGET_MS = 10_000.0
_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_FIELDS = frozenset({"use", "options", "models", "only", "budget_ms", "on_failure"})

OnFailure = Literal["closed", "open"]
Only = Literal["all", "dedicated", "serverless"]


@dataclass(frozen=True, slots=True)
class HookRule:
    """A hook, the calls it applies to, and what happens to a call when the hook fails.

    Functions run inside the gateway's own process, so only a hook for `all` backends sees their
    calls.
    """

    use: str
    options: Mapping[str, Any] = field(default_factory=dict)
    models: frozenset[str] = frozenset()
    only: Only = "all"
    budget_ms: float = USUAL_BUDGET_MS
    on_failure: OnFailure = "closed"
    where: str = "hooks"

    def concerns(self, hosting: Hosting, kind: BackendKind, models: Set[str]) -> bool:
        """Tell whether the hook applies to calls to such a backend;
        `models` are all names the call goes by."""
        if self.models and not self.models & models:
            return False
        return self.only == "all" or (self.only == hosting and kind != "function")


def read(section: Any, environment: Mapping[str, str], table: RoutingTable) -> tuple[HookRule, ...]:
    """Return the rules of a `hooks:` section; raise RoutingInvalid."""
    if section is None:
        return ()
    if not isinstance(section, list) or len(section) > MAX_HOOKS:
        raise wrong("hooks", "it is not a list of hooks", f"List up to {MAX_HOOKS} of them.")
    return tuple(
        _rule(Fields(entry, f"hooks[{index}]", environment), table)
        for index, entry in enumerate(section)
    )


def _rule(entry: Fields, table: RoutingTable) -> HookRule:
    entry.only(_FIELDS)
    use = entry.text("use")
    if use not in BUILT_IN and not _FACTORY.fullmatch(use):
        cure = "Use `pii`, `presidio`, or `module:factory`."
        raise wrong(entry.at("use"), f"`{use}` is not a hook", cure)
    options = entry.raw("options") or {}
    if not isinstance(options, dict):
        raise wrong(entry.at("options"), "it is not a mapping", "Write `option: value` lines.")
    models = entry.tags("models")
    for model in models:
        if model not in table.names():
            cure = f"Use one of: {', '.join(table.names())}."
            raise wrong(entry.at("models"), f"there is no model `{model}`", cure)
    return HookRule(
        use,
        options,
        frozenset(table.aliases.get(model, model) for model in models),
        entry.choice("only", ("all", "dedicated", "serverless"), "all"),
        entry.number("budget_ms", USUAL_BUDGET_MS, 1.0, MAX_BUDGET_MS),
        entry.choice("on_failure", ("closed", "open"), "closed"),
        entry.where,
    )
