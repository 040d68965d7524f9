"""Decides whether a text may run as a query, and writes the statement that runs in its place.

What is checked is what runs: the text is parsed (`reading`), checked as a tree, and the statement is
written from that tree (`writing`), without comments, with every table qualified and with a row limit. So
it does not matter if the database would have understood the original text differently.
Rules are of the allowing kind wherever they can be: known parts (`constructs`), built-in types
(`casts`), known functions (`calls`, also those that Postgres calls for a field: `attributes`), listed
tables (`tables`).

Pure: no IO, no clock. Every refusal is a subclass of SqlRefused that names what is refused and the
cure. The guard keeps mistakes and injected text away from data; the walls behind it are the read-only
transaction, the session's `search_path` and the database role (see `targets`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hocket.workers.sql.errors import SqlUnreadable
from hocket.workers.sql.guard.attributes import check_attributes
from hocket.workers.sql.guard.calls import Calls
from hocket.workers.sql.guard.constructs import check_construct
from hocket.workers.sql.guard.copies import check_copies
from hocket.workers.sql.guard.names import parse_pattern
from hocket.workers.sql.guard.reading import parse
from hocket.workers.sql.guard.tables import Tables, columns_of
from hocket.workers.sql.guard.writing import check_written, limit, named, write

DIALECTS: Final = ("postgres", "sqlite", "mysql", "duckdb")
MAX_NODES: Final = 10_000
MAX_LEVELS: Final = 500
"""How deep a query may nest; a chain of ANDs or UNIONs is as deep as it is long."""

_DEFAULT_SCHEMA: Final = {"postgres": "public", "sqlite": "main", "duckdb": "main"}


@dataclass(frozen=True)
class CheckedQuery:
    """A statement that may run: `segments` alternates SQL text and parameter names.

    `tables` are `schema.table`; `columns` are `schema.table.column`, or only `column` where the text
    leaves open which table it belongs to. The statement returns at most `max_rows + 1` rows.
    """

    dialect: str
    segments: tuple[str, ...]
    tables: tuple[str, ...]
    columns: tuple[str, ...]
    max_rows: int

    @property
    def sql(self) -> str:
        """The statement with `:name` parameters, for people to read."""
        return named(self.segments)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, each once, in order of appearance."""
        return tuple(dict.fromkeys(self.segments[1::2]))


def check_query(
    sql: str,
    *,
    dialect: str,
    tables: Sequence[str],
    within: Sequence[str] | None = None,
    default_schema: str | None = None,
    functions_allowed: Iterable[str] = (),
    types_allowed: Iterable[str] = (),
    max_rows: int,
) -> CheckedQuery:
    """Check that `sql` is one SELECT over allowed tables, and return the statement to run instead.

    A table must match a pattern of `tables` and, where `within` is given, one of `within` as well.
    Unqualified tables, and allowed functions of the database's own, belong to `default_schema`.
    System catalogs need a pattern that names them.
    """
    assert dialect in DIALECTS, dialect
    assert max_rows >= 1, max_rows
    tree = parse(sql, dialect)
    home = default_schema or _DEFAULT_SCHEMA.get(dialect)
    lists = [texts for texts in (tables, within) if texts is not None]
    patterns = tuple(tuple(parse_pattern(text, dialect) for text in texts) for texts in lists)
    calls = Calls(dialect, home, frozenset(name.lower() for name in functions_allowed))
    types = frozenset(types_allowed)
    levels: dict[int, int] = {}
    for count, node in enumerate(tree.walk()):
        if count == MAX_NODES:
            raise SqlUnreadable(dialect=dialect, reason=f"it has more than {MAX_NODES} parts")
        levels[id(node)] = levels.get(id(node.parent), 0) + 1
        if levels[id(node)] > MAX_LEVELS:
            raise SqlUnreadable(dialect=dialect, reason=f"it nests deeper than {MAX_LEVELS} levels")
        if node.error_messages():  # the parser accepts a few nodes that are incomplete
            raise SqlUnreadable(dialect=dialect, reason=f"a {node.key} in it is not complete")
        check_construct(node, dialect, types)
        calls.check(node)
    if dialect == "postgres":
        check_attributes(tree)
    found = Tables(dialect, patterns, home).resolve(tree)
    check_copies(tree, dialect)
    columns = columns_of(tree, dialect)
    calls.qualify(tree)
    checked = CheckedQuery(
        dialect=dialect,
        segments=write(limit(tree, max_rows + 1), dialect),
        tables=tuple(sorted(found)),
        columns=columns,
        max_rows=max_rows,
    )
    check_written(checked.sql, dialect)
    return checked
