"""Generates the page docs/reference/settings.md from the settings themselves.

`python -m hocket.cli.settings_page` prints it.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import AliasChoices, SecretStr
from pydantic_core import PydanticUndefined

from hocket.kit.process.settings import Settings

HEAD = """\
# Settings

Every process reads these variables from its environment when it starts. `hocket up` passes its own
environment on and sets some of them by its options. Routing, databases and node types are configured in
one file, which `HOCKET_CONFIG` names ([its sections](#sections-of-the-configuration-file)).

This page is made from the code (`make docs`).

| variable | default | meaning |
|---|---|---|
"""
TAIL = """
The `hocket` command also reads `HOCKET_API_URL`, `HOCKET_CONTEXT`, `HOCKET_TENANT` and
`HOCKET_API_KEY`, which name the platform, the tenant and the key of its commands ([several
platforms](../how-to/contexts.md)), and `HOCKET_REPORT_PASSWORD` ([report
logins](../how-to/report-logins.md)). `hocket-worker` reads `HOCKET_BLOBS_DIR` ([node
types](../how-to/own-node-types.md#where-it-runs)), and the REST service `FORWARDED_ALLOW_IPS`
([proxies](http-security.md)).

## Sections of the configuration file

| section | of | described in |
|---|---|---|
"""
GATEWAY = "../how-to/gateway.md"
SECTIONS = (
    (
        "`models`, `pools`",
        "gateways",
        f"[gateway]({GATEWAY}#replicas-pools-and-quality); LiteLLM's `model_list` works as it is",
    ),
    (
        "`budgets`, `rates`",
        "gateways",
        f"[budgets]({GATEWAY}#set-budgets), [rates]({GATEWAY}#limit-requests-and-tokens-per-minute)",
    ),
    ("`experiments`, `hooks`", "gateways", "[routing](../explanation/routing.md)"),
    (
        "`access`, `content`",
        "gateways",
        "[keys of the HTTP door](http-door.md#keys), [content](../how-to/content.md)",
    ),
    (
        "`workers`, `node_types`, `blobs`",
        "workers",
        "[workers](../how-to/workers.md#configure-workers)",
    ),
    ("`databases`", "workers", "[`sql`](nodes/sql.md#fields-of-a-database)"),
    (
        "`http_services`, `nats_services`, `mcp_servers`",
        "workers",
        "[http](nodes/http.md#the-service), [nats](nodes/nats.md#the-service), [mcp](nodes/mcp.md)",
    ),
)


def page() -> str:
    """Return the text of the page."""
    rows = [_row(name, field) for name, field in Settings.model_fields.items()]
    return HEAD + _lines(rows) + TAIL + _lines(SECTIONS)


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


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
    if isinstance(default, tuple):
        return f"`{', '.join(default)}`"
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
