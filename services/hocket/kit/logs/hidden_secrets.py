"""The secrets of this process: neither its log lines nor the errors of its steps show them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from hocket.schemas.checks.redaction import Redactor

_hidden: list[str] = []


def hide(secrets: Iterable[str]) -> None:
    """Hide values in every text that `without_secrets` returns from now on."""
    _hidden.extend(secrets)
    _redactor.cache_clear()


def without_secrets(text: str) -> str:
    """Return a text without the secrets of this process and the passwords of URLs."""
    return _redactor()(text)


def line_without_secrets(_logger: Any, _method: str, line: Any) -> str:
    """Hide secrets in the text of a log line: its last processor."""
    return without_secrets(str(line))


@cache
def _redactor() -> Redactor:
    return Redactor(_hidden)
