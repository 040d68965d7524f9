"""Finds the tables that a query reads, by scope; checks them against the lists and qualifies them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import traverse_scope

from hocket.workers.sql.errors import SqlConstructRefused, SqlTableRefused, SqlUnreadable
from hocket.workers.sql.guard.names import TablePattern, fold_identifier, identifier, set_name
from hocket.workers.sql.guard.reading import excerpt, first_line

MAX_ALLOWED_IN_MESSAGE: Final = 12

_SYSTEM_NAME: Final = {
    "postgres": re.compile(r"(?!)"),
    "sqlite": re.compile(
        r"(sqlite_|pragma_|dbstat|bytecode|tables_used|fts3tokenize).*|completion"
    ),
    "mysql": re.compile(r"(?!)"),
    "duckdb": re.compile(r"(sqlite_|pragma_|duckdb_|pg_).*|.*[^a-z0-9_$].*"),
}
"""Names that reach a catalog (or, in DuckDB, a file) from an ordinary schema. A wildcard does not allow
them; only their own name does."""


@dataclass(frozen=True)
class Tables:
    """The lists of tables that a query may read; a table must match a pattern of every list."""

    dialect: str
    lists: tuple[tuple[TablePattern, ...], ...]
    home: str | None
    """The schema of tables that are named without a schema."""

    def resolve(self, tree: exp.Query) -> set[str]:
        """Check and qualify every table, distinguishing CTEs by scope; return the tables."""
        found: set[str] = set()
        unseen = {id(table) for table in tree.find_all(exp.Table)}
        stack: list[tuple[exp.Expr, _Names]] = [(tree, _Names())]
        while stack:
            node, names = stack.pop()
            with_ = node.args.get("with_")
            if isinstance(with_, exp.With):
                names = self._enter_with(with_, names, stack)
                stack.extend((c, names) for c in _children(with_) if not isinstance(c, exp.CTE))
            if isinstance(node, exp.Table):
                unseen.discard(id(node))
                self._resolve(node, names, found)
            stack.extend((child, names) for child in _children(node) if child is not with_)
        if unseen:
            raise SqlConstructRefused(
                construct="a table in a place that is not checked", cure="Write it in FROM."
            )
        return found

    def _enter_with(
        self, with_: exp.With, names: "_Names", stack: list[tuple[exp.Expr, "_Names"]]
    ) -> "_Names":
        """Queue each CTE with the names that it can see: earlier ones, and itself if recursive."""
        own = [fold_identifier(cte.args["alias"].this, self.dialect) for cte in with_.expressions]
        looks_ahead = bool(with_.recursive) or self.dialect == "sqlite"
        for i, (cte, name) in enumerate(zip(with_.expressions, own, strict=True)):
            set_name(cte.args["alias"].this, name, self.dialect)
            seen = names.ctes | set(own[: i + 1] if with_.recursive else own[:i])
            later = names.later | set(own[i + 1 :]) if looks_ahead else names.later
            stack.append((cte.this, _Names(seen, later)))
        return _Names(names.ctes | set(own), names.later)

    def _resolve(self, table: exp.Table, names: "_Names", found: set[str]) -> None:
        if isinstance(table.this, exp.Func) or table.args.get("rows_from"):
            return
        if not isinstance(table.this, exp.Identifier) or table.args.get("catalog"):
            raise SqlConstructRefused(
                construct=f"`{excerpt(table, self.dialect)}` as a table",
                cure="Name tables as `schema.table`.",
            )
        name, schema = fold_identifier(table.this, self.dialect), table.args.get("db")
        if schema is None and self._is_no_table(table, name, names):
            return
        home = fold_identifier(schema, self.dialect) if schema else self._home_of(name)
        self._check_allowed(home, name)
        set_name(table.this, name, self.dialect)
        table.set("db", identifier(home, self.dialect))
        found.add(f"{home}.{name}")

    def _is_no_table(self, table: exp.Table, name: str, names: "_Names") -> bool:
        """Tell whether a name without a schema refers to a CTE, or to MySQL's `dual`."""
        if name in names.ctes:
            set_name(table.this, name, self.dialect)
            return True
        if name in names.later:
            raise SqlConstructRefused(
                construct=f"`{name}` before WITH defines it, which databases read differently",
                cure="Define it first, or name the table with its schema.",
            )
        return self.dialect == "mysql" and name.lower() == "dual"

    def _home_of(self, name: str) -> str:
        if self.dialect == "postgres" and name.startswith("pg_"):
            return "pg_catalog"
        if self.home is None:
            raise SqlTableRefused(
                table=name, allowed=f"{self._allowed()}; qualify it with its schema"
            )
        return self.home

    def _check_allowed(self, schema: str, name: str) -> None:
        by_name_only = _SYSTEM_NAME[self.dialect].fullmatch(name.lower()) is not None
        for patterns in self.lists:
            if not any(
                schema == p.schema and (name == p.table or (p.table is None and not by_name_only))
                for p in patterns
            ):
                raise SqlTableRefused(table=f"{schema}.{name}", allowed=self._allowed())

    def _allowed(self) -> str:
        texts = [f"{p.schema}.{p.table or '*'}" for p in self.lists[-1]]
        more = len(texts) - MAX_ALLOWED_IN_MESSAGE
        shown = ", ".join(texts[:MAX_ALLOWED_IN_MESSAGE]) or "none"
        return f"{shown} and {more} more" if more > 0 else shown


@dataclass(frozen=True)
class _Names:
    """The CTEs that a place in the text can read, and those that it can read in some dialects only."""

    ctes: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()


def _children(node: exp.Expr) -> Iterator[exp.Expr]:
    for value in node.args.values():
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, exp.Expr):
                yield item


def columns_of(tree: exp.Query, dialect: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(set(_columns_by_scope(tree))))
    except OptimizeError as error:
        raise SqlUnreadable(dialect=dialect, reason=first_line(error)) from error


def _columns_by_scope(tree: exp.Query) -> Iterator[str]:
    for scope in traverse_scope(tree):
        sources = scope.sources
        only = next(iter(sources.values())) if len(sources) == 1 else None
        for column in scope.columns:
            source = sources.get(column.table) if column.table else only
            if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
                yield ".".join(part for part in (source.db, source.name, column.name) if part)
            elif source is None or isinstance(source, exp.Table):
                yield column.name
