"""Decide whether a text may run as a query, and write the statement that runs in its place.

What is checked is what runs: the text is parsed, checked as a tree, and the statement is written anew
from that tree, without comments, with every table qualified and with a row limit. A reader that
understood the text otherwise than we did therefore has nothing to understand. Rules are of the
allowing kind wherever they can be: known node classes, known functions, listed tables.

Pure: no IO, no clock. Every refusal is a subclass of SqlRefused that names what is refused and the
cure. The guard keeps mistakes and injected text away from data; the wall behind it is the read-only
transaction and the database role (see `targets`).
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import TokenType

from hocket.workers.sql import casts, functions
from hocket.workers.sql.attributes import check_attributes
from hocket.workers.sql.errors import (
    SqlConstructRefused,
    SqlFunctionRefused,
    SqlNotOneSelect,
    SqlParametersWrong,
    SqlRefused,
    SqlTableRefused,
    SqlUnreadable,
)

DIALECTS: Final = ("postgres", "sqlite", "mysql", "duckdb")

MAX_SQL_CHARS: Final = 65_536
MAX_NODES: Final = 20_000
MAX_PARAMETERS: Final = 256
MAX_ALLOWED_IN_MESSAGE: Final = 12

_OPEN, _CLOSE = "\x01", "\x02"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PLACEHOLDER = re.compile(f"{_OPEN}([A-Za-z_][A-Za-z0-9_]*){_CLOSE}")
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_WORD_AS_PARAMETER = re.compile(
    r"(?<![:\w]):(from|like|ilike|not|key|select|where|join|with)\b", re.I
)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PATTERN = re.compile(r'("(?:[^"]|"")+"|[^".\s*]+)\.("(?:[^"]|"")+"|\*|[^".\s*]+)')

_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ASCII_LOWER = str.maketrans(_UPPER, _UPPER.lower())

_DEFAULT_SCHEMA: Final = {"postgres": "public", "sqlite": "main", "duckdb": "main"}
_SYSTEM_NAME: Final = {
    "postgres": re.compile(r"(?!)"),
    "sqlite": re.compile(
        r"(sqlite_|pragma_|dbstat|bytecode|tables_used|fts3tokenize).*|completion"
    ),
    "mysql": re.compile(r"(?!)"),
    "duckdb": re.compile(r"(sqlite_|pragma_|duckdb_|pg_).*|.*[^a-z0-9_$].*"),
}
"""Names that reach a catalog (or, in DuckDB, a file) from an ordinary schema: a wildcard does not
allow them, only the name itself does."""

_BUILT_IN_SCHEMA: Final = {"postgres": "pg_catalog", "duckdb": "main"}

_FUNCTION_MODULES = frozenset(
    f"sqlglot.expressions.{name}"
    for name in (
        "aggregate",
        "array",
        "datatypes",
        "functions",
        "json",
        "math",
        "string",
        "temporal",
    )
)
_OBJECTS_ALLOWED: Final = ("OID", "REGCONFIG")
_SAMPLE_METHODS: Final = ("BERNOULLI", "SYSTEM")
_CORE_REFUSED = (
    exp.Cache,
    exp.CombinedAggFunc,
    exp.CombinedParameterizedAgg,
    exp.DynamicIdentifier,
    exp.Hint,
    exp.JoinHint,
    exp.LockingStatement,
    exp.Operator,
    exp.Opclass,
    exp.Parameter,
    exp.ParameterizedAgg,
    exp.Refresh,
    exp.SessionParameter,
    exp.Uncache,
)
_FUNCTIONS_REFUSED = (
    exp.AIClassify,
    exp.AIEmbed,
    exp.AIForecast,
    exp.AIGenerate,
    exp.AISimilarity,
    exp.CurrentIpAddress,
    exp.FeaturesAtTime,
    exp.GenerateBool,
    exp.GenerateDouble,
    exp.GenerateEmbedding,
    exp.GenerateInt,
    exp.GenerateTable,
    exp.GenerateText,
    exp.MLForecast,
    exp.MLTranslate,
    exp.Predict,
    exp.ReadCSV,
    exp.ReadParquet,
    exp.VectorSearch,
)
_QUERY_ALLOWED = frozenset(
    """
    With CTE RecursiveWithSearch TableAlias BitString HexString ByteString RawString UnicodeString
    National ColumnDef From Having Fetch Group Cube Rollup GroupingSets Lambda Limit LimitOptions
    Join Lateral TableFromRows Offset Order Qualify Tuple Table Union Except Intersect Values Select
    Subquery TableSample Pivot UnpivotColumns Window WindowSpec Where JSON JSONPath JSONPathPart
    JSONPathFilter JSONPathKey JSONPathRecursive JSONPathRoot JSONPathScript JSONPathSlice
    JSONPathSelector JSONPathSubscript JSONPathUnion JSONPathWildcard FormatJson JSONKeyValue
    JSONColumnDef JSONSchema JSONValue JSONValueArray JSONExtractQuote XMLNamespace XMLKeyValueOption
    TableColumn Variadic OnCondition OverflowTruncateBehavior
    """.split()
)
_TABLE_ARGS = frozenset(
    "this db alias joins laterals pivots only rows_from sample ordinality partition".split()
)
_SELECT_ARGS = frozenset(
    "with_ expressions from_ joins laterals where group having qualify windows distinct order limit "
    "offset pivots".split()
)


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
        """The statement with `:name` parameters, for people."""
        return _named(self.segments)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, each once, in order of appearance."""
        return tuple(dict.fromkeys(self.segments[1::2]))


@dataclass(frozen=True)
class TablePattern:
    """One entry of an allow-list: a table, or with `table` None every ordinary table of a schema."""

    schema: str
    table: str | None


def parse_pattern(text: str, dialect: str) -> TablePattern:
    """Read `schema.table` or `schema.*` (quoted names keep their case); else SqlRefused."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise SqlRefused(
            reason=f"`{text}` in the list of allowed tables is not `schema.table` or `schema.*`",
            cure="Write both parts, for example `public.orders` or `public.*`.",
        )
    schema, table = (_pattern_name(part, dialect) for part in match.groups())
    return TablePattern(schema, None if match.group(2) == "*" else table)


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
    Unqualified tables belong to `default_schema`. System catalogs need a pattern that names them.
    """
    assert dialect in DIALECTS, dialect
    assert max_rows >= 1, max_rows
    tree = _parse(sql, dialect)
    rules = _Rules(
        dialect=dialect,
        lists=tuple(
            tuple(parse_pattern(text, dialect) for text in texts)
            for texts in (tables, within)
            if texts is not None
        ),
        default_schema=default_schema or _DEFAULT_SCHEMA.get(dialect),
        functions_allowed=frozenset(name.lower() for name in functions_allowed),
        types_allowed=frozenset(types_allowed),
    )
    for count, node in enumerate(tree.walk()):
        if count == MAX_NODES:
            raise SqlUnreadable(dialect=dialect, reason=f"it has more than {MAX_NODES} parts")
        if node.error_messages():  # the parser takes a few that it cannot make sense of itself
            raise SqlUnreadable(dialect=dialect, reason=f"a {node.key} in it is not complete")
        rules.check_node(node)
    if dialect == "postgres":
        check_attributes(tree)
    found = rules.resolve_tables(tree)
    columns = _columns(tree, dialect)
    _number_of_parameters(tree)
    segments = _write(_limit(tree, max_rows + 1), dialect)
    checked = CheckedQuery(
        dialect=dialect,
        segments=segments,
        tables=tuple(sorted(found)),
        columns=columns,
        max_rows=max_rows,
    )
    _check_written(checked.sql, dialect)
    return checked


# ---- reading --------------------------------------------------------------------------------


def _parse(sql: str, dialect: str) -> exp.Query:
    if len(sql) > MAX_SQL_CHARS:
        raise SqlUnreadable(dialect=dialect, reason=f"it is longer than {MAX_SQL_CHARS} characters")
    if _CONTROL.search(sql):
        raise SqlUnreadable(dialect=dialect, reason="it contains control characters")
    try:
        parsed = sqlglot.parse(sql, dialect=dialect)
    except SqlglotError as error:
        if word := _WORD_AS_PARAMETER.search(sql):
            raise SqlParametersWrong(
                reason=f"`{word.group(1)}` is a word of SQL and cannot name a parameter",
                cure=f"Call it something else, for example `:{word.group(1)}_value`.",
            ) from error
        raise SqlUnreadable(dialect=dialect, reason=_first_line(error)) from error
    except RecursionError as error:
        raise SqlUnreadable(dialect=dialect, reason="it is nested too deeply") from error
    statements = [s for s in parsed if s is not None and not isinstance(s, exp.Semicolon)]
    if len(statements) != 1:
        raise SqlNotOneSelect(found=f"{len(statements)} statements")
    return _as_query(statements[0])


def _as_query(statement: exp.Expr) -> exp.Query:
    if isinstance(statement, exp.Subquery) and _is_bare(statement):
        return _as_query(statement.this)
    if isinstance(statement, exp.Select | exp.SetOperation | exp.Subquery):
        return statement
    raise SqlNotOneSelect(found=f"a {_name_of(statement)} statement")


def _is_bare(query: exp.Subquery) -> bool:
    return not any(value for key, value in query.args.items() if key != "this")


def _first_line(error: Exception) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return text[0][:200] if text else type(error).__name__


def _name_of(node: exp.Expr) -> str:
    if isinstance(node, exp.Command):
        return str(node.this).upper()
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()


# ---- rules ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules:
    dialect: str
    lists: tuple[tuple[TablePattern, ...], ...]
    default_schema: str | None
    functions_allowed: frozenset[str]
    types_allowed: frozenset[str]

    def check_node(self, node: exp.Expr) -> None:
        """Refuse a node that no reading query needs."""
        if isinstance(node, exp.Into):
            raise SqlNotOneSelect(found="SELECT INTO, which writes a table")
        if isinstance(node, exp.Lock):
            raise SqlConstructRefused(
                construct="a locking clause (FOR UPDATE, FOR SHARE)", cure="Leave it out."
            )
        if isinstance(node, exp.DML | exp.DDL | exp.Command) and not isinstance(node, exp.Query):
            raise SqlNotOneSelect(found=f"{_article(_name_of(node))} inside")
        if isinstance(node, exp.ObjectIdentifier) and node.this not in _OBJECTS_ALLOWED:
            raise SqlConstructRefused(
                construct=f"a cast to {node.this}, which reads the system catalog",
                cure="Name the object in the text instead.",
            )
        if isinstance(node, exp.DataType) and self.dialect == "postgres":
            casts.check_type(node, self.types_allowed)
        if isinstance(node, exp.Placeholder):
            self._check_placeholder(node)
        if not self._is_allowed_class(node):
            raise SqlConstructRefused(
                construct=f"{_name_of(node)} (`{_excerpt(node, self.dialect)}`)",
                cure="Write the query without it; parameters are written `:name`.",
            )
        if isinstance(node, exp.Func):
            self._check_function(node, self._qualifier_of(node))
        if isinstance(node, exp.Select):
            self._check_args(node, _SELECT_ARGS)
        if isinstance(node, exp.Table):
            self._check_args(node, _TABLE_ARGS)
        if isinstance(node, exp.TableSample) and self.dialect == "postgres":
            self._check_sample(node)
        if isinstance(node, exp.CTE) and not isinstance(node.this, exp.Query | exp.Values):
            raise SqlNotOneSelect(found=f"{_article(_name_of(node.this))} in WITH")

    def _is_allowed_class(self, node: exp.Expr) -> bool:
        module, name = type(node).__module__, type(node).__name__
        if isinstance(node, _CORE_REFUSED):
            return False
        if module == "sqlglot.expressions.query":
            return name in _QUERY_ALLOWED
        return module == "sqlglot.expressions.core" or module in _FUNCTION_MODULES

    def _check_args(self, node: exp.Expr, allowed: frozenset[str]) -> None:
        for key, value in node.args.items():
            if key not in allowed and value not in (None, False, []):
                raise SqlConstructRefused(
                    construct=f"`{key.strip('_')}` in {_excerpt(node, self.dialect)}",
                    cure="Write the query without it.",
                )

    def _check_sample(self, node: exp.TableSample) -> None:
        if node.text("method").upper() not in _SAMPLE_METHODS:
            raise SqlConstructRefused(
                construct=f"a sampling method of its own (`{node.text('method')}`)",
                cure="Use SYSTEM or BERNOULLI.",
            )

    def _check_placeholder(self, node: exp.Placeholder) -> None:
        if not isinstance(node.this, str) or not _PARAMETER_NAME.fullmatch(node.this):
            raise SqlParametersWrong(
                reason="a parameter has no name, or one that is not letters, digits and `_`",
                cure="Write parameters as `:name`.",
            )

    def _qualifier_of(self, function: exp.Func) -> str | None:
        """Return the schema before a function's name, in an expression or in FROM."""
        parent = function.parent
        if isinstance(parent, exp.Dot) and parent.expression is function:
            names = list(_dotted(parent.this))
        elif isinstance(parent, exp.Table) and parent.this is function and parent.args.get("db"):
            names = [parent.catalog, parent.db] if parent.catalog else [parent.db]
        else:
            return None
        return _fold(".".join(names), False, self.dialect)

    def _check_function(self, node: exp.Func, schema: str | None = None) -> None:
        if isinstance(node, exp.Connector):
            return
        anonymous = isinstance(node, exp.Anonymous | exp.AnonymousAggFunc)
        name = str(node.name if anonymous else node.sql_name())
        full = (f"{schema}.{name}" if schema else name).lower()
        if functions.is_denied(self.dialect, name):
            raise SqlFunctionRefused(
                function=full,
                reason="can reach beyond the allowed tables",
                cure="It cannot be allowed.",
            )
        if isinstance(node, _FUNCTIONS_REFUSED):
            raise SqlFunctionRefused(
                function=full, reason="reaches beyond the database", cure="It cannot be allowed."
            )
        if full in self.functions_allowed:
            return
        if schema not in (None, _BUILT_IN_SCHEMA.get(self.dialect)) or (
            anonymous and not self._is_known(name)
        ):
            raise SqlFunctionRefused(
                function=full,
                reason="is not known to be harmless",
                cure="Add it to `functions` of the database if it only computes from its arguments.",
            )

    def _is_known(self, name: str) -> bool:
        """Tell whether a function by name is one that an unqualified call may use."""
        modelled = exp.FUNCTION_BY_NAME.get(name.upper())
        if modelled is not None and modelled.__module__ in _FUNCTION_MODULES:
            return not issubclass(modelled, _FUNCTIONS_REFUSED)
        return functions.is_known(self.dialect, name)

    # ---- tables, by scope -------------------------------------------------------------------

    def resolve_tables(self, tree: exp.Query) -> set[str]:
        """Check and qualify every table, telling CTEs apart by scope; return the tables."""
        found: set[str] = set()
        stack: list[tuple[exp.Expr, _Names]] = [(tree, _Names())]
        while stack:
            node, names = stack.pop()
            with_ = node.args.get("with_")
            if isinstance(with_, exp.With):
                names = self._enter_with(with_, names, stack)
            if isinstance(node, exp.Table):
                self._resolve(node, names, found)
            stack.extend((child, names) for child in _children(node) if child is not with_)
        return found

    def _enter_with(
        self, with_: exp.With, names: "_Names", stack: list[tuple[exp.Expr, "_Names"]]
    ) -> "_Names":
        """Queue each CTE with the names it can see (the earlier ones, and itself if recursive)."""
        own = [_fold_identifier(cte.args["alias"].this, self.dialect) for cte in with_.expressions]
        looks_ahead = bool(with_.recursive) or self.dialect == "sqlite"
        for i, (cte, name) in enumerate(zip(with_.expressions, own, strict=True)):
            _set_name(cte.args["alias"].this, name, self.dialect)
            seen = names.ctes | set(own[: i + 1] if with_.recursive else own[:i])
            later = names.later | set(own[i + 1 :]) if looks_ahead else names.later
            stack.append((cte.this, _Names(seen, later)))
        return _Names(names.ctes | set(own), names.later)

    def _resolve(self, table: exp.Table, names: "_Names", found: set[str]) -> None:
        if isinstance(table.this, exp.Func) or table.args.get("rows_from"):
            return
        if not isinstance(table.this, exp.Identifier) or table.args.get("catalog"):
            raise SqlConstructRefused(
                construct=f"`{_excerpt(table, self.dialect)}` as a table",
                cure="Name tables as `schema.table`.",
            )
        name, schema = _fold_identifier(table.this, self.dialect), table.args.get("db")
        if schema is None and name in names.ctes:
            _set_name(table.this, name, self.dialect)
            return
        if schema is None and name in names.later:
            raise SqlConstructRefused(
                construct=f"`{name}` before WITH defines it, which databases read differently",
                cure="Define it first, or name the table with its schema.",
            )
        if schema is None and self.dialect == "mysql" and name.lower() == "dual":
            return
        home = _fold_identifier(schema, self.dialect) if schema else self._home_of(name)
        self._check_allowed(home, name)
        _set_name(table.this, name, self.dialect)
        table.set("db", _identifier(home, self.dialect))
        found.add(f"{home}.{name}")

    def _home_of(self, name: str) -> str:
        if self.dialect == "postgres" and name.startswith("pg_"):
            return "pg_catalog"
        if self.default_schema is None:
            raise SqlTableRefused(
                table=name, allowed=f"{self._allowed()}; qualify it with its schema"
            )
        return self.default_schema

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
    """The CTEs that a place in the text can read, and those that some dialects let it read too."""

    ctes: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()


def _children(node: exp.Expr) -> Iterator[exp.Expr]:
    for value in node.args.values():
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, exp.Expr):
                yield item


def _dotted(node: exp.Expr) -> Iterator[str]:
    if isinstance(node, exp.Dot):
        yield from _dotted(node.this)
        yield from _dotted(node.expression)
    elif isinstance(node, exp.Column):
        yield from (part.name for part in node.parts)
    else:
        yield node.name if isinstance(node, exp.Identifier) else "?"


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1] in "AEIOU" else f"a {noun}"


def _excerpt(node: exp.Expr, dialect: str) -> str:
    return str(node.sql(dialect=dialect, comments=False))[:80]


# ---- names ----------------------------------------------------------------------------------


def _fold(name: str, quoted: bool, dialect: str) -> str:
    """Return the name as the database compares it; only ASCII letters change, as the databases do."""
    if dialect == "mysql" or (dialect == "postgres" and quoted):
        return name
    return name.translate(_ASCII_LOWER)


def _fold_identifier(node: Any, dialect: str) -> str:
    assert isinstance(node, exp.Identifier), node
    return _fold(node.name, bool(node.args.get("quoted")), dialect)


def _set_name(node: exp.Identifier, name: str, dialect: str) -> None:
    """Write into the tree the name that was checked, quoted where a reader could fold it otherwise."""
    node.set("this", name)
    node.set("quoted", bool(node.args.get("quoted")) or not _is_plain(name, dialect))


def _identifier(name: str, dialect: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=not _is_plain(name, dialect))


def _is_plain(name: str, dialect: str) -> bool:
    folded = name.lower() if dialect == "mysql" else name
    return name.isascii() and _PLAIN_NAME.fullmatch(folded) is not None


def _pattern_name(text: str, dialect: str) -> str:
    if text.startswith('"'):
        return _fold(text[1:-1].replace('""', '"'), True, dialect)
    return _fold(text, False, dialect)


def _columns(tree: exp.Query, dialect: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(set(_columns_by_scope(tree))))
    except OptimizeError as error:
        raise SqlUnreadable(dialect=dialect, reason=_first_line(error)) from error


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


# ---- writing --------------------------------------------------------------------------------


def _number_of_parameters(tree: exp.Query) -> None:
    if sum(1 for _ in tree.find_all(exp.Placeholder)) > MAX_PARAMETERS:
        raise SqlParametersWrong(
            reason=f"there are more than {MAX_PARAMETERS} placeholders",
            cure="Pass a list: `= ANY(:ids)`.",
        )


def _limit(tree: exp.Query, rows: int) -> exp.Query:
    """Bound the rows: in the query's own LIMIT where that keeps its meaning, else around it."""
    limit = tree.args.get("limit")
    if limit is None and not isinstance(tree, exp.Subquery):
        return tree.limit(rows, copy=False)
    if isinstance(limit, exp.Limit) and _plain_number(limit.expression) is not None:
        if (_plain_number(limit.expression) or 0) > rows:
            limit.set("expression", exp.Literal.number(rows))
        return tree
    inner = tree if isinstance(tree, exp.Subquery) else exp.Subquery(this=tree)
    if isinstance(tree, exp.Subquery) and not _is_bare(tree):
        inner = exp.Subquery(this=exp.select("*").from_(_aliased(tree)))
    return exp.select("*").from_(_aliased(inner)).limit(rows)


def _aliased(query: exp.Subquery) -> exp.Subquery:
    if query.args.get("alias"):
        return query
    query.set("alias", exp.TableAlias(this=exp.to_identifier("hocket_rows")))
    return query


def _plain_number(node: Any) -> int | None:
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
        return int(node.this)
    return None


def _write(tree: exp.Query, dialect: str) -> tuple[str, ...]:
    for node in list(tree.find_all(exp.Placeholder)):
        node.replace(exp.Var(this=f"{_OPEN}{node.this}{_CLOSE}"))
    try:
        text = tree.sql(dialect=dialect, comments=False)
    except (SqlglotError, RecursionError) as error:
        raise SqlUnreadable(dialect=dialect, reason=_first_line(error)) from error
    return tuple(_PLACEHOLDER.split(text))


def _check_written(sql: str, dialect: str) -> None:
    """Read the written statement again: it must mean the same to us, and call nothing denied."""
    if _named(_write(_parse(sql, dialect), dialect)) != sql:
        raise SqlUnreadable(dialect=dialect, reason="it does not read the same way twice")
    tokens = sqlglot.tokenize(sql, dialect=dialect)
    for token, following in itertools.pairwise(tokens):
        called = following.token_type is TokenType.L_PAREN
        if called and token.token_type is not TokenType.STRING:
            _check_called(token.text, dialect)


def _check_called(name: str, dialect: str) -> None:
    if functions.is_denied(dialect, name):
        raise SqlFunctionRefused(
            function=name.lower(),
            reason="can reach beyond the allowed tables",
            cure="It cannot be allowed; a name of yours that is spelled so needs another.",
        )


def _named(segments: Sequence[str]) -> str:
    return "".join(f":{text}" if i % 2 else text for i, text in enumerate(segments))
