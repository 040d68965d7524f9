"""Builds hooks from the configuration, and selects those that a call goes through.

The option `use` names a built-in hook (`pii`, `presidio`) or the user's own `module:factory`, which
is called with the hook's options.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from hocket.gateway.core.config.hook_rules import HookRule
from hocket.gateway.core.config.table import BackendSpec
from hocket.gateway.core.errors import USER_IMPORT_ERRORS, RoutingInvalid
from hocket.gateway.hooks.pii import PiiHook
from hocket.gateway.hooks.presidio import PresidioHook
from hocket.gateway.hooks.protocol import Hook
from hocket.schemas.errors import HocketError

_BUILT_IN: Mapping[str, Callable[[Mapping[str, Any]], Hook]] = {
    "pii": PiiHook,
    "presidio": PresidioHook,
}


@dataclass(frozen=True, slots=True)
class BuiltHook:
    """A hook with its rule."""

    rule: HookRule
    hook: Hook


def build(rules: Sequence[HookRule]) -> tuple[BuiltHook, ...]:
    """Return the hooks of a configuration; raise RoutingInvalid if one cannot be built."""
    return tuple(BuiltHook(rule, _made(rule)) for rule in rules)


def hooks_for(
    hooks: Sequence[BuiltHook], spec: BackendSpec, models: Set[str]
) -> tuple[BuiltHook, ...]:
    """Return the hooks for a call to a backend; `models` are all names the call goes by."""
    return tuple(one for one in hooks if one.rule.concerns(spec.hosting, spec.kind, models))


def _made(rule: HookRule) -> Hook:
    factory = _BUILT_IN.get(rule.use)
    try:
        return (factory or _imported(rule.use))(rule.options)
    except HocketError:
        raise
    except USER_IMPORT_ERRORS as error:
        cure = "Fix it, or remove the hook."
        reason = f"`{rule.use}` cannot be created: {error!r}"
        raise RoutingInvalid(field=rule.where, reason=reason, cure=cure) from error


def _imported(use: str) -> Callable[[Mapping[str, Any]], Hook]:
    module, _, name = use.partition(":")
    factory: Callable[[Mapping[str, Any]], Hook] = getattr(importlib.import_module(module), name)
    return factory
