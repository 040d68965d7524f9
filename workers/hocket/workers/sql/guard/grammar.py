"""sqlglot's grammar of Postgres, without the changes that it makes when it writes a query.

sqlglot translates between dialects: it knows functions by their meaning and operators by their name in
other databases, and writes what it considers equivalent. But what is checked must be what runs, word for
word. So here a call stays a call of that name, and an operator stays that operator. The grammar also
adds syntax that sqlglot does not read: SQL/JSON's clauses, `@ x`, `!! x`, `JOIN ... USING (...) AS j`.
"""

import re
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from hocket.workers.sql.parse_steps import COUNTED, CountedParser

NAME: Final = "hocketpostgres"

_SPECIAL_SYNTAX: Final = (
    "CAST",
    "EXTRACT",
    "JSON_TABLE",
    "NORMALIZE",
    "OVERLAY",
    "POSITION",
    "STRING_AGG",
    "SUBSTRING",
    "TRIM",
    "XMLELEMENT",
    "XMLTABLE",
)
"""Calls whose arguments are more than a plain list."""
_SQL_JSON: Final = (
    "JSON_ARRAY",
    "JSON_ARRAYAGG",
    "JSON_EXISTS",
    "JSON_OBJECT",
    "JSON_OBJECTAGG",
    "JSON_QUERY",
    "JSON_SERIALIZE",
    "JSON_VALUE",
)
_JSON_WORDS: Final = frozenset(
    """
    ABSENT ARRAY AS CONDITIONAL DEFAULT EMPTY ENCODING ERROR FALSE FORMAT JSON KEEP KEYS NULL OBJECT
    OMIT ON PASSING QUOTES RETURNING SCALAR STRING TRUE UNCONDITIONAL UNIQUE UNKNOWN UTF8 VALUE WITH
    WITHOUT WRAPPER
    """.split()
)
_BEFORE_A_VALUE: Final = frozenset(("", ",", ":", "DEFAULT", "PASSING", "VALUE"))
_BEFORE_A_CLAUSE: Final = ("ON", "RETURNING")


class Prefix(exp.Unary):
    """A prefix operator; `operator` is its spelling."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "operator": True}


class Infix(exp.Expression, exp.Binary):
    """An infix operator that sqlglot would write as a function, or as another operator."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "operator": True}


class SqlJson(exp.Anonymous):
    """A call of a SQL/JSON function; `expressions` holds its arguments and keywords in order."""


OWN: Final = (Prefix, Infix, SqlJson)


class _Parser(CountedParser, PostgresParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **{name: PostgresParser.FUNCTION_PARSERS[name] for name in _SPECIAL_SYNTAX},
        **{name: (lambda self, name=name: self.parse_sql_json(name)) for name in _SQL_JSON},
    }
    UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **PostgresParser.UNARY_PARSERS,
        TokenType.PIPE_SLASH: lambda self: self.parse_prefix("|/"),
        TokenType.DPIPE_SLASH: lambda self: self.parse_prefix("||/"),
        TokenType.PARAMETER: lambda self: self.parse_prefix("@"),
    }
    EXPONENT: ClassVar[dict[Any, Any]] = {
        TokenType.CARET: lambda this, expression: Infix(
            this=this, expression=expression, operator="^"
        )
    }
    RANGE_PARSERS: ClassVar[dict[Any, Any]] = {
        **PostgresParser.RANGE_PARSERS,
        TokenType.CARET_AT: lambda self, this: self.parse_infix(this, "^@"),
    }
    EQUALITY: ClassVar[dict[Any, Any]] = {
        **PostgresParser.EQUALITY,
        TokenType.NULLSAFE_EQ: lambda this, expression: Infix(
            this=this, expression=expression, operator="<=>"
        ),
    }

    def parse_prefix(self, operator: str) -> exp.Expr:
        """Parse the operand of a prefix operator."""
        if operator == "@" and self._prev.text != "@":  # to sqlglot `$1` is the same as `@1`
            self.raise_error("Parameters are written `:name`")
        return self.expression(Prefix(this=self._parse_unary(), operator=operator))

    def parse_infix(self, this: exp.Expr | None, operator: str) -> exp.Expr:
        """Parse the right operand of an operator."""
        return self.expression(
            Infix(this=this, expression=self._parse_bitwise(), operator=operator)
        )

    def parse_sql_json(self, name: str) -> exp.Expr:
        """Parse the contents of the parentheses of a SQL/JSON function."""
        parts: list[exp.Expr] = []
        last = ""
        while self._curr and not self._match(TokenType.R_PAREN, advance=False):
            part = self._parse_json_part(last)
            if part is None:
                self.raise_error(f"Expected an argument of {name}")
                break
            last = str(part.this) if isinstance(part, exp.Var) else "value"
            parts.append(part)
        return self.expression(SqlJson(this=name.lower(), expressions=parts))

    def _parse_json_part(self, last: str) -> exp.Expr | None:
        word = self._curr.text.upper()
        following = self._next.text.upper() if self._next else ""
        if last == "RETURNING":
            return self._parse_types(allow_identifiers=True)
        if last == "AS":
            return self._parse_id_var()
        if self._match(TokenType.ORDER_BY, advance=False):
            return self._parse_order()
        is_clause = word in _JSON_WORDS and (
            last not in _BEFORE_A_VALUE or following in _BEFORE_A_CLAUSE or word == "RETURNING"
        )
        if is_clause or word in (",", ":"):
            self._advance()
            return exp.Var(this=word)
        if last == "value":  # otherwise `TABLE x` would pass as two values, and it is a query
            return None
        if self._match_set((TokenType.SELECT, TokenType.WITH), advance=False):
            return self._parse_select()
        return self._parse_disjunction()

    def _parse_recursive_with_search(self) -> exp.RecursiveWithSearch | None:
        self._match_text_seq("SEARCH")
        if not self._match_texts(self.RECURSIVE_CTE_SEARCH_KIND):
            return None
        kind = self._prev.text.upper()
        self._match_text_seq("FIRST", "BY")
        columns = self._parse_csv(self._parse_id_var)  # sqlglot itself reads only one
        return self.expression(
            exp.RecursiveWithSearch(
                kind=kind,
                this=exp.Var(this=", ".join(column.sql(NAME) for column in columns)),
                expression=self._match_text_seq("SET") and self._parse_id_var(),
                to=self._match_text_seq("TO") and self._parse_bitwise(),
                default=self._match(TokenType.DEFAULT) and self._parse_bitwise(),
                using=self._match_text_seq("USING") and self._parse_id_var(),
            )
        )


class _Generator(PostgresGenerator):
    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **PostgresGenerator.TRANSFORMS,
        Prefix: lambda self, e: f"{e.args['operator']} {self.sql(e, 'this')}",
        Infix: lambda self, e: (
            f"{self.sql(e, 'this')} {e.args['operator']} {self.sql(e, 'expression')}"
        ),
        SqlJson: lambda self, e: self.sql_json(e),
        exp.Localtimestamp: lambda self, e: self.now_sql("LOCALTIMESTAMP", e),
        exp.Localtime: lambda self, e: self.now_sql("LOCALTIME", e),
        exp.CurrentTime: lambda self, e: self.now_sql("CURRENT_TIME", e),
        exp.CurrentTimestamp: lambda self, e: self.now_sql("CURRENT_TIMESTAMP", e),
    }

    def sql_json(self, node: exp.Expr) -> str:
        """Write a call of a SQL/JSON function."""
        parts = " ".join(self.sql(part) for part in node.expressions)
        return f"{node.name.upper()}({parts.replace(' ,', ',').replace(' :', ':')})"

    def now_sql(self, name: str, node: exp.Expr) -> str:
        """Write one of the time functions that are called without parentheses."""
        digits = self.sql(node, "this")
        return f"{name}({digits})" if digits else name


class HocketPostgres(Postgres):
    """The dialect, which registers itself with sqlglot as NAME."""

    INDEX_OFFSET = (
        0  # otherwise sqlglot recomputes the index of `x[1]`, which is slow for deep nesting
    )
    Parser = _Parser
    Generator = _Generator


def grammar_of(dialect: str) -> str:
    """Return the name of the grammar with which a dialect is read and written."""
    return NAME if dialect == "postgres" else COUNTED[dialect]


def respelled(sql: str) -> str:
    """Return a Postgres text with the few spellings replaced that sqlglot misreads: numbers such as
    `0x1F` and `1_000`, `bit varying`, and `box '(...)'`. Raises ValueError for `1abc` and `! x`."""
    parts: list[str] = []
    end = 0
    tokens = sqlglot.tokenize(sql, dialect=NAME)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.start < end:
            continue
        changed, stop = _respelling(sql, before, token, after)
        if changed is not None and changed != sql[token.start : stop]:
            parts += [sql[end : token.start], changed]
            end = stop
    return "".join([*parts, sql[end:]])


_NUMBER: Final = re.compile(r"\.?[0-9]")
_WORD: Final = re.compile(r"[A-Za-z_]")
_GROUPED: Final = re.compile(
    r"[0-9]+(_[0-9]+)*(\.([0-9]+(_[0-9]+)*)?)?([eE][+-]?[0-9]+)?|\.[0-9]+.*"
)
_NAMED_LITERALS: Final = frozenset("box circle line lseg polygon tsquery tsvector cidr".split())


def _respelling(
    sql: str, before: Token | None, token: Token, after: Token | None
) -> tuple[str | None, int]:
    """Return the new spelling of a token, or None to keep it, and where the replaced text ends."""
    text, stop = sql[token.start : token.end + 1], token.end + 1
    adjoining = after if after is not None and after.start == stop else None
    if text == "!":
        _check_operator(adjoining)
    if _NUMBER.match(text):
        stop = _end_of_number(sql, stop, adjoining)
        return _number(sql[token.start : stop]), stop
    if after is None:
        return None, stop
    if token.token_type is TokenType.BIT:
        is_varying = _is_type(before) and after.text.upper() == "VARYING"
        return ("varbit", after.end + 1) if is_varying else (None, stop)
    if _is_named_literal(text, after) and not adjoining:
        return f"CAST({sql[after.start : after.end + 1]} AS {text})", after.end + 1
    return None, stop


def _check_operator(adjoining: Token | None) -> None:
    """Raise ValueError if `!` does not begin an operator such as `!~`."""
    if adjoining is None or not adjoining.text.startswith("~"):
        raise ValueError("`!` is not an operator on its own")


def _end_of_number(sql: str, stop: int, adjoining: Token | None) -> int:
    """Return the end of a number that the tokenizer may have split, such as `0x1F`."""
    if adjoining is not None and _WORD.match(sql[adjoining.start]):
        return adjoining.end + 1
    return stop


def _is_type(before: Token | None) -> bool:
    return before is not None and before.text.upper() in ("::", "AS")


def _is_named_literal(text: str, after: Token) -> bool:
    return text.lower() in _NAMED_LITERALS and after.token_type is TokenType.STRING


def _number(text: str) -> str:
    """Return a Postgres number in decimal digits; raise ValueError if it is not a number."""
    if text[:2].lower() in ("0x", "0o", "0b"):
        return str(int(text, 0))
    if not _GROUPED.fullmatch(text):
        raise ValueError(f"`{text[:40]}` is not a number")
    return text.replace("_", "")
