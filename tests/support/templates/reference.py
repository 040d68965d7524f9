"""Jinja2's own sandbox, made to produce JSON: the former implementation of expressions, with which ours
is compared."""

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Sandbox(ImmutableSandboxedEnvironment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


_ENVIRONMENT = _Sandbox(undefined=StrictUndefined, autoescape=False, cache_size=0)


def expression(text: str, scope: Mapping[str, Any]) -> Any:
    compiled = _ENVIRONMENT.compile_expression(text, undefined_to_none=False)
    return _plain(compiled(scope))


def template(text: str, scope: Mapping[str, Any]) -> str:
    return _ENVIRONMENT.from_string(text).render(scope)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Undefined):
        value._fail_with_undefined_error()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]
