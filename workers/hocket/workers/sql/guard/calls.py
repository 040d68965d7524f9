"""Checks by name which functions a query calls, and whether it may."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from hocket.workers.sql.errors import SqlFunctionRefused
from hocket.workers.sql.guard import functions
from hocket.workers.sql.guard.names import fold_identifier, identifier, is_plain

_BUILT_IN_SCHEMA: Final = {"postgres": "pg_catalog", "duckdb": "main"}
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


@dataclass(frozen=True)
class Calls:
    """The functions that a query may call: built-in ones, and allowed ones of the database itself."""

    dialect: str
    home: str | None
    """The schema of allowed functions that are named without a schema."""
    allowed: frozenset[str]

    def check(self, node: exp.Expr) -> None:
        """Refuse a call of a function that is denied or not known to be harmless."""
        if isinstance(node, exp.Func) and not isinstance(node, exp.Connector):
            self._check_spelling(node)
            self._check_name(node, self._qualifier_of(node))

    def qualify(self, tree: exp.Query) -> None:
        """Add the schema to the database's own functions, because Postgres would look elsewhere."""
        if self.dialect != "postgres" or self.home is None:
            return
        for node in list(tree.find_all(exp.Func)):
            if self._is_own(node):
                home = identifier(self.home, self.dialect)
                if isinstance(node.parent, exp.Table) and node.parent.this is node:
                    node.parent.set("db", home)
                else:
                    node.replace(exp.Dot(this=home, expression=node.copy()))

    def _is_own(self, node: exp.Func) -> bool:
        name = _name_of(node)
        return (
            name.lower() in self.allowed
            and self._qualifier_of(node) is None
            and not functions.outlasts_its_time(self.dialect, name)
            and (functions.is_of_extension(name) or not self.knows(name))
        )

    def _check_spelling(self, node: exp.Func) -> None:
        """Write a quoted name in its folded form: otherwise it is written in capitals, which is a
        different name."""
        name = node.this if isinstance(node, exp.Anonymous) else None
        if not isinstance(name, exp.Identifier):
            return
        if not is_plain(name.name, self.dialect):
            raise SqlFunctionRefused(
                function=name.name,
                reason="is quoted and not in lower case",
                cure="Write functions without quotes.",
            )
        node.set("this", name.name)

    def _qualifier_of(self, function: exp.Func) -> str | None:
        """Return the schema before a function's name, in an expression or in FROM."""
        parent = function.parent
        if isinstance(parent, exp.Dot) and parent.expression is function:
            return ".".join(_dotted(parent.this, self.dialect))
        if isinstance(parent, exp.Table) and parent.this is function and parent.args.get("db"):
            parts = (parent.args.get("catalog"), parent.args["db"])
            return ".".join(name for part in parts if part for name in _dotted(part, self.dialect))
        return None

    def _check_name(self, node: exp.Func, schema: str | None) -> None:
        anonymous = isinstance(node, exp.Anonymous | exp.AnonymousAggFunc)
        name = _name_of(node)
        full = f"{schema}.{name.lower()}" if schema else name.lower()
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
        if full in self.allowed:
            return
        if functions.outlasts_its_time(self.dialect, name):
            raise SqlFunctionRefused(
                function=full,
                reason="may take very long, and is not stopped when the query times out",
                cure="Return its arguments and compute it in a `python` node, or add the function to "
                "`functions` of the database.",
            )
        if schema not in (None, _BUILT_IN_SCHEMA.get(self.dialect)) or (
            anonymous and not self.knows(name)
        ):
            raise SqlFunctionRefused(
                function=full,
                reason="is not known to be harmless",
                cure="Add it to `functions` of the database if it only computes from its arguments.",
            )

    def knows(self, name: str) -> bool:
        """Tell whether an unqualified call may use the function with this name."""
        modelled = exp.FUNCTION_BY_NAME.get(name.upper())
        if modelled is not None and modelled.__module__ in functions.MODULES:
            return not issubclass(modelled, _FUNCTIONS_REFUSED)
        return functions.is_known(self.dialect, name)


def _name_of(node: exp.Func) -> str:
    if isinstance(node, exp.XMLTable):
        return "xmltable"
    anonymous = isinstance(node, exp.Anonymous | exp.AnonymousAggFunc)
    return str(node.name if anonymous else node.sql_name())


def _dotted(node: exp.Expr, dialect: str) -> Iterator[str]:
    if isinstance(node, exp.Dot):
        yield from _dotted(node.this, dialect)
        yield from _dotted(node.expression, dialect)
    elif isinstance(node, exp.Column):
        yield from (fold_identifier(part, dialect) for part in node.parts)
    else:
        yield fold_identifier(node, dialect) if isinstance(node, exp.Identifier) else "?"
