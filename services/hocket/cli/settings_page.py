"""Generates the page docs/reference/settings.md from the settings themselves.

`python -m hocket.cli.settings_page` prints it.
"""

import re
import sys
from typing import Any

from pydantic import AliasChoices, SecretStr
from pydantic_core import PydanticUndefined

from hocket.kit.process.settings import Settings

HEAD = """\
# Settings

Every process reads these variables from its environment when it starts. `hocket up` passes its own
environment on and sets some of them by its options. What routing, databases and node types need stands
in one file, which `HOCKET_CONFIG` names: [the gateway](../how-to/gateway.md), [`sql`](nodes/sql.md),
[workers](../how-to/workers.md).

This page is made from the code (`make docs`).

| variable | default | meaning |
|---|---|---|
"""
TAIL = """
The `hocket` command also reads `HOCKET_API_URL`, `HOCKET_CONTEXT` and `HOCKET_TENANT`, which name the
platform and the tenant that its commands talk to ([several platforms](../how-to/contexts.md)).
"""


def page() -> str:
    """Return the text of the page."""
    rows = [_row(name, field) for name, field in Settings.model_fields.items()]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows) + TAIL


def _row(name: str, field: Any) -> tuple[str, str, str]:
    alias = field.validation_alias
    names = alias.choices if isinstance(alias, AliasChoices) else [f"HOCKET_{name.upper()}"]
    shown = " or ".join(f"`{one}`" for one in names)
    return shown, _default(field), _meaning(field)


def _default(field: Any) -> str:
    default = field.default
    if default is PydanticUndefined or default is None or default in ((), {}, ""):
        return "none"
    if isinstance(default, SecretStr):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, int | float):
        return f"`{default}`"
    return f"`{re.sub(r'^/.*(?=/.local/)', '~', str(default))}`"


def _meaning(field: Any) -> str:
    text = " ".join((field.description or "").split()).replace("|", "\\|")
    return re.sub(r"docs/((?:reference|how-to|explanation)/[\w/.-]+\.md)", _link, text)


def _link(found: re.Match[str]) -> str:
    shelf, _, name = found[1].partition("/")
    target = name if shelf == "reference" else f"../{found[1]}"
    return f"[{name.removesuffix('.md').replace('-', ' ')}]({target})"


if __name__ == "__main__":
    sys.stdout.write(page())
