"""The parts that a query may have: known node classes with known arguments, and types of values."""

import re
from collections.abc import Collection
from typing import Final

from sqlglot import exp

from hocket.workers.sql.errors import SqlConstructRefused, SqlNotOneSelect, SqlParametersWrong
from hocket.workers.sql.guard import casts
from hocket.workers.sql.guard.functions import MODULES
from hocket.workers.sql.guard.grammar import OWN
from hocket.workers.sql.guard.reading import article, excerpt, name_of

_BUILT_IN_OPERATOR = re.compile(r"pg_catalog\.[-+*/<>=~!@#%^&|`?]+")
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
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
    exp.Opclass,
    exp.Parameter,
    exp.ParameterizedAgg,
    exp.Refresh,
    exp.SessionParameter,
    exp.Uncache,
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


def check_construct(node: exp.Expr, dialect: str, types_allowed: Collection[str]) -> None:
    """Refuse a node that no reading query needs."""
    _check_reads_only(node)
    if dialect == "postgres":
        _check_in_postgres(node, types_allowed)
    if isinstance(node, exp.In) and node.args.get("field") and dialect != "duckdb":
        raise SqlConstructRefused(  # SQLite reads a name there as a table
            construct=f"a name after IN (`{excerpt(node, dialect)}`)",
            cure="Write the list or the query: `IN (SELECT id FROM orders)`.",
        )
    if isinstance(node, exp.Placeholder):
        _check_placeholder(node)
    if not _is_allowed_class(node):
        raise SqlConstructRefused(
            construct=f"{name_of(node)} (`{excerpt(node, dialect)}`)",
            cure="Write the query without it; parameters are written `:name`.",
        )
    if isinstance(node, exp.Select):
        _check_args(node, _SELECT_ARGS, dialect)
    elif isinstance(node, exp.Table):
        _check_args(node, _TABLE_ARGS, dialect)


def _check_reads_only(node: exp.Expr) -> None:
    """Refuse parts that write, lock, or look into the catalog."""
    if isinstance(node, exp.Into):
        raise SqlNotOneSelect(found="SELECT INTO, which writes a table")
    if isinstance(node, exp.Lock):
        raise SqlConstructRefused(
            construct="a locking clause (FOR UPDATE, FOR SHARE)", cure="Leave it out."
        )
    if isinstance(node, exp.DML | exp.DDL | exp.Command) and not isinstance(node, exp.Query):
        raise SqlNotOneSelect(found=f"{article(name_of(node))} inside")
    if isinstance(node, exp.CTE) and not isinstance(node.this, exp.Query | exp.Values):
        raise SqlNotOneSelect(found=f"{article(name_of(node.this))} in WITH")
    if isinstance(node, exp.ObjectIdentifier) and node.this not in _OBJECTS_ALLOWED:
        raise SqlConstructRefused(
            construct=f"a cast to {node.this}, which reads the system catalog",
            cure="Name the object in the text instead.",
        )


def _check_in_postgres(node: exp.Expr, types_allowed: Collection[str]) -> None:
    if isinstance(node, exp.DataType):
        casts.check_type(node, types_allowed)
    elif isinstance(node, exp.TableSample):
        _check_sample(node)


def _is_allowed_class(node: exp.Expr) -> bool:
    module, name = type(node).__module__, type(node).__name__
    if isinstance(node, OWN):
        return True
    if isinstance(node, exp.Operator):  # none from a schema that somebody else can write to
        return _BUILT_IN_OPERATOR.fullmatch(str(node.args.get("operator"))) is not None
    if isinstance(node, _CORE_REFUSED):
        return False
    if module == "sqlglot.expressions.query":
        return name in _QUERY_ALLOWED
    return module == "sqlglot.expressions.core" or module in MODULES


def _check_args(node: exp.Expr, allowed: frozenset[str], dialect: str) -> None:
    for key, value in node.args.items():
        if key not in allowed and value not in (None, False, []):
            raise SqlConstructRefused(
                construct=f"`{key.strip('_')}` in {excerpt(node, dialect)}",
                cure="Write the query without it.",
            )


def _check_sample(node: exp.TableSample) -> None:
    if node.text("method").upper() not in _SAMPLE_METHODS:
        raise SqlConstructRefused(
            construct=f"a sampling method of its own (`{node.text('method')}`)",
            cure="Use SYSTEM or BERNOULLI.",
        )


def _check_placeholder(node: exp.Placeholder) -> None:
    if not isinstance(node.this, str) or not _PARAMETER_NAME.fullmatch(node.this):
        raise SqlParametersWrong(
            reason="a parameter has no name, or one that is not letters, digits and `_`",
            cure="Write parameters as `:name`.",
        )
