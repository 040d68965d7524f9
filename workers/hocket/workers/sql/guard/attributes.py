"""Attribute notation in Postgres: `(x).f`, `x.f` and `x[1].f` call `f(x)` if `x` has no field `f`.

So a field's name may be the name of a function: of any function that takes one argument and can be
reached by the session's `search_path`, which is `pg_catalog` (see `targets`). The following are refused:

- a field of a value that cannot have fields (a literal, a parameter, a cast, an operation);
- a field of anything else (a column, an element, a subquery, a call) with the name of a denied function,
  or of a built-in one that is not known to be harmless;
- the same after the name of a function in FROM, `FROM generate_series(1, 9) AS g`: `g.f` is a column if
  the alias lists it, and otherwise may be `f(g)`;
- after the name of a table, CTE or subquery, only functions that take whole rows, because no others can
  be called.
"""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from hocket.workers.sql.errors import SqlConstructRefused, SqlFunctionRefused
from hocket.workers.sql.guard import functions
from hocket.workers.sql.guard.postgres_names import TAKE_ONE_ARGUMENT, TAKE_ROWS
from hocket.workers.sql.guard.reading import excerpt

_MAY_HAVE_FIELDS: Final = (exp.Column, exp.Identifier, exp.Subquery, exp.Func, exp.Window)
_NEVER_HAVE_FIELDS: Final = (
    exp.Cast,
    exp.Case,
    exp.Connector,
    exp.Array,
    exp.Concat,
    exp.DPipe,
)


def check_attributes(tree: exp.Query) -> None:
    """Refuse fields that Postgres would read as a call of a function that the query may not call."""
    sources = _Sources(tree)
    for node in tree.walk():
        if isinstance(node, exp.Dot) and not _is_type(node):
            _check_field(node)
        elif isinstance(node, exp.Column) and node.args.get("table"):
            _check_column(node, sources)


def _check_field(dot: exp.Dot) -> None:
    field = dot.expression
    if isinstance(field, exp.Func):  # schema.function(...), checked as a call
        return
    if not isinstance(field, exp.Identifier | exp.Star):
        raise SqlConstructRefused(
            construct=f"a field that is not a name in `{_excerpt(dot)}`", cure="Name the field."
        )
    base = dot.this
    while isinstance(base, exp.Paren | exp.Bracket):
        base = base.this
    if isinstance(base, exp.Dot):
        pass  # it is checked separately
    elif not isinstance(base, _MAY_HAVE_FIELDS) or isinstance(base, _NEVER_HAVE_FIELDS):
        raise SqlConstructRefused(
            construct=f"a field of a value without fields (`{_excerpt(dot)}`), which Postgres "
            "reads as a function call",
            cure="Call the function by its name: `lower(x)`.",
        )
    if isinstance(field, exp.Identifier):
        _check_name(field.name, dot)


def _is_type(dot: exp.Dot) -> bool:
    """Tell whether a dotted name names a type, which `casts` checks."""
    top: exp.Expr = dot
    while isinstance(top.parent, exp.Dot):
        top = top.parent
    return isinstance(top.parent, exp.DataType)


def _check_column(column: exp.Column, sources: "_Sources") -> None:
    if isinstance(column.this, exp.Star) or isinstance(column.parent, exp.Collate):
        return
    source, name = _fold(column.args["table"]), _fold(column.this)
    if not sources.may_be_function(source):
        if name in TAKE_ROWS:
            _refuse(name, column)
    elif not sources.is_column(source, name):
        _check_name(name, column)


def _check_name(text: str, node: exp.Expr) -> None:
    name = text.lower()
    refused = name in TAKE_ONE_ARGUMENT or functions.outlasts_its_time("postgres", name)
    if refused or functions.is_denied("postgres", name):
        _refuse(name, node)


def _refuse(name: str, node: exp.Expr) -> None:
    raise SqlFunctionRefused(
        function=name,
        reason=f"is how Postgres reads `{_excerpt(node)}` where there is no such column",
        cure="If it is a column, give it another name in the query: `AS t(other_name)`.",
    )


class _Sources:
    """What the names before a column can refer to in the whole query; scopes would only narrow that."""

    def __init__(self, tree: exp.Query) -> None:
        self._rows: set[str] = set()
        self._columns: dict[str, set[str]] = {}
        self._all = False
        for node in tree.walk():
            if isinstance(node, exp.Table | exp.UDTF | exp.Subquery | exp.CTE):
                self._add(node)

    def may_be_function(self, name: str) -> bool:
        """Tell whether a name may refer to the value of a function in FROM, which has no fields."""
        return self._all or name in self._columns or name not in self._rows

    def is_column(self, source: str, name: str) -> bool:
        """Tell whether every function in FROM with this name is known to have the column."""
        return not self._all and name in self._columns.get(source, ())

    def _add(self, node: exp.Expr) -> None:
        alias = node.args.get("alias") or exp.TableAlias()
        name = _fold(alias.this) if alias.this else ""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            self._rows.add(name or _fold(node.this))
        elif _gives_rows(node):
            self._rows.add(name)
        elif _is_named_elsewhere(node, name):
            return
        elif not name:
            self._all = True  # Postgres names it by its own rules
        else:
            listed = {_fold(column) for column in _listed(alias)}
            self._columns[name] = self._columns.get(name, listed) & listed


def _gives_rows(node: exp.Expr) -> bool:
    if isinstance(node, exp.Lateral):
        return isinstance(node.this, exp.Subquery)
    return isinstance(node, exp.Subquery | exp.CTE | exp.Values)


def _is_named_elsewhere(node: exp.Expr, name: str) -> bool:
    """Tell whether a function's alias is one level up, or the function is called for its value and so
    has no alias."""
    if isinstance(node.parent, exp.Lateral) or node.arg_key == "rows_from":
        return True
    return not name and isinstance(node, exp.Func) and not _is_in_from(node)


def _is_in_from(node: exp.Expr) -> bool:
    return isinstance(node.parent, exp.From | exp.Join | exp.Subquery)


def _listed(alias: exp.TableAlias) -> Iterator[exp.Identifier]:
    for column in alias.args.get("columns") or ():
        yield column.this if isinstance(column, exp.ColumnDef) else column


def _fold(name: exp.Expr) -> str:
    quoted = bool(name.args.get("quoted"))
    return str(name.name) if quoted else str(name.name).lower()


def _excerpt(node: exp.Expr) -> str:
    return excerpt(node, "postgres")
