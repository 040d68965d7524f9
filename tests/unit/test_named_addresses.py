"""What errors and docstrings name of the REST API is there: a cure that nobody can follow is none."""

import re
from collections.abc import Iterator
from pathlib import Path

from fastapi.routing import APIRoute

from hocket.admin.app import ROUTERS

ROOT = Path(__file__).parents[2]
SOURCES = ("schemas", "services/hocket", "workers")
NAMED = re.compile(r"\b(GET|PUT|POST|DELETE)\s+(/v1/[\w/{}-]+)")
DOOR = ("chat", "completions", "embeddings", "messages", "models", "responses")
"""What the gateways' HTTP door serves."""


def _named() -> Iterator[tuple[str, str, str]]:
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            for method, address in NAMED.findall(path.read_text()):
                if address.split("/")[2] not in DOOR:
                    yield str(path.relative_to(ROOT)), method, address


def test_addresses_named_in_the_source_are_served() -> None:
    routes = [
        (route.methods, route.path_regex)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
    ]
    named = list(_named())
    unknown = [
        one
        for one in named
        if not any(one[1] in methods and path.match(one[2]) for methods, path in routes)
    ]

    assert len(named) > 10
    assert unknown == []
