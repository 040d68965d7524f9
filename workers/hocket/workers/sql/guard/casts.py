"""The types that a query may name on Postgres: built-in ones that hold values.

A cast runs the input function of its type, the conversion functions between two types, and the CHECK
of a domain, which calls whatever its owner wrote. So a query may name only types of `pg_catalog` that
hold values, and types that the operator lists (`types` of the database). Types that look up names in the
catalog (`regclass` and the like) are refused. So are padding to a great length, and XML, which libxml2
parses to the end regardless of the query's timeout.
"""

from collections.abc import Iterable
from typing import Final

from sqlglot import exp
from sqlglot.expressions import DType

from hocket.workers.sql.errors import SqlConstructRefused

MAX_PADDED_CHARS: Final = 4_096
"""The largest allowed n in `char(n)` and `bit(n)`, which pad a value to length n."""

_REFUSED: Final = frozenset(
    (
        DType.UNKNOWN,
        DType.OBJECT,
        DType.VARIANT,
        DType.STRUCT,
        DType.MAP,
        DType.ENUM,
        DType.SERIAL,
        DType.SMALLSERIAL,
        DType.BIGSERIAL,
        DType.HSTORE,
        DType.VECTOR,
        DType.GEOMETRY,
        DType.GEOGRAPHY,
    )
)
_BUILT_IN: Final = frozenset(
    """
    bit bool boolean box bpchar bytea char cidr circle date datemultirange daterange decimal float4
    float8 inet int int2 int4 int4multirange int4range int8 int8multirange int8range integer interval
    json jsonb jsonpath line lseg macaddr macaddr8 money name numeric nummultirange numrange path
    pg_lsn point polygon text tid time timestamp timestamptz timetz tsmultirange tsquery tsrange
    tstzmultirange tstzrange tsvector uuid varbit varchar xid xid8 regconfig oid
    """.split()
)
_XML: Final = frozenset(("xml", "pg_catalog.xml"))
_PADDED: Final = (DType.CHAR, DType.NCHAR, DType.BPCHAR, DType.BIT)


def check_type(node: exp.DataType, allowed: Iterable[str]) -> None:
    """Refuse a type that is not known to be harmless to cast to."""
    name = type_name(node)
    if name in allowed:
        return
    if name in _XML:
        raise SqlConstructRefused(
            construct="the type `xml`, whose texts the database reads without stopping when the query "
            "times out",
            cure="Return the text and read it in a `python` node, or add `xml` to `types` of the "
            "database.",
        )
    schema, _, bare = name.rpartition(".")
    if node.this == DType.USERDEFINED:
        known = bare in _BUILT_IN and schema in ("", "pg_catalog")
    else:
        known = node.this not in _REFUSED
    if not known:
        raise SqlConstructRefused(
            construct=f"the type `{name}`, whose casts may run their own code or read the catalog",
            cure="Compare with plain text, cast to a built-in type, or add it to `types` of the "
            "database if its casts only compute.",
        )
    _check_length(node)


def is_built_in(name: str) -> bool:
    """Tell whether a name names a built-in type that a query may cast to."""
    return name in _BUILT_IN


def type_name(node: exp.DataType) -> str:
    """Return the name of a type as Postgres compares it, with its schema if the query gives one."""
    if node.this != DType.USERDEFINED:
        return str(node.this.value if isinstance(node.this, DType) else node.this).lower()
    kind = node.args.get("kind")
    if isinstance(kind, exp.Expr):
        return ".".join(_parts(kind))
    return str(kind).lower()


def _parts(kind: exp.Expr) -> list[str]:
    if isinstance(kind, exp.Dot):
        return [*_parts(kind.this), *_parts(kind.expression)]
    quoted = bool(kind.args.get("quoted"))
    return [kind.name if quoted else kind.name.lower()]


def _check_length(node: exp.DataType) -> None:
    if node.this not in _PADDED:
        return
    for parameter in node.expressions:
        length = parameter.this if isinstance(parameter, exp.DataTypeParam) else parameter
        digits = str(getattr(length, "this", ""))
        if not digits.isdecimal() or int(digits) > MAX_PADDED_CHARS:
            raise SqlConstructRefused(
                construct=f"`{node.sql(dialect='postgres')}`, which pads values with blanks",
                cure=f"Use `varchar`, or a length of at most {MAX_PADDED_CHARS}.",
            )
