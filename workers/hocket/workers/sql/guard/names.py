"""How databases compare names, and the allow-lists of tables."""

import re
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from hocket.workers.sql.errors import SqlRefused

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PATTERN = re.compile(r'("(?:[^"]|"")+"|[^".\s*]+)\.("(?:[^"]|"")+"|\*|[^".\s*]+)')

_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ASCII_LOWER = str.maketrans(_UPPER, _UPPER.lower())


@dataclass(frozen=True)
class TablePattern:
    """One entry of an allow-list: a table, or with `table` None every ordinary table of a schema."""

    schema: str
    table: str | None


def parse_pattern(text: str, dialect: str) -> TablePattern:
    """Parse `schema.table` or `schema.*` (quoted names keep their case); raise SqlRefused otherwise."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise SqlRefused(
            reason=f"`{text}` in the list of allowed tables is not `schema.table` or `schema.*`",
            cure="Write both parts, for example `public.orders` or `public.*`.",
        )
    schema, table = (_pattern_name(part, dialect) for part in match.groups())
    return TablePattern(schema, None if match.group(2) == "*" else table)


def fold(name: str, quoted: bool, dialect: str) -> str:
    """Return a name as the database compares it; as in the databases, only ASCII letters change."""
    if dialect == "mysql" or (dialect == "postgres" and quoted):
        return name
    return name.translate(_ASCII_LOWER)


def fold_identifier(node: Any, dialect: str) -> str:
    """Return an identifier as the database compares it."""
    assert isinstance(node, exp.Identifier), node
    return fold(node.name, bool(node.args.get("quoted")), dialect)


def set_name(node: exp.Identifier, name: str, dialect: str) -> None:
    """Write the checked name into the tree, quoted if a reader could fold it differently."""
    node.set("this", name)
    node.set("quoted", bool(node.args.get("quoted")) or not is_plain(name, dialect))


def identifier(name: str, dialect: str) -> exp.Identifier:
    """Return the identifier of a folded name, quoted if necessary."""
    return exp.to_identifier(name, quoted=not is_plain(name, dialect))


def is_plain(name: str, dialect: str) -> bool:
    """Tell whether a name means the same with and without quotes."""
    folded = name.lower() if dialect == "mysql" else name
    return name.isascii() and _PLAIN_NAME.fullmatch(folded) is not None


def _pattern_name(text: str, dialect: str) -> str:
    if text.startswith('"'):
        return fold(text[1:-1].replace('""', '"'), True, dialect)
    return fold(text, False, dialect)
