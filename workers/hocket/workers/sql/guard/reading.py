"""Parses a text as one query, to a tree of sqlglot; a refusal says why it is not one."""

import re
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from hocket.workers.sql.errors import SqlNotOneSelect, SqlParametersWrong, SqlUnreadable
from hocket.workers.sql.guard.grammar import grammar_of, respelled
from hocket.workers.sql.parse_steps import TooManySteps

MAX_SQL_CHARS: Final = 65_536

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WORD_AS_PARAMETER = re.compile(
    r"(?<![:\w]):(from|like|ilike|not|key|select|where|join|with)\b", re.I
)


def parse(sql: str, dialect: str) -> exp.Query:
    """Return the single query in a text; raise SqlUnreadable or SqlNotOneSelect."""
    if len(sql) > MAX_SQL_CHARS:
        raise SqlUnreadable(dialect=dialect, reason=f"it is longer than {MAX_SQL_CHARS} characters")
    if _CONTROL.search(sql):
        raise SqlUnreadable(dialect=dialect, reason="it contains control characters")
    try:
        parsed = sqlglot.parse(
            respelled(sql) if dialect == "postgres" else sql, dialect=grammar_of(dialect)
        )
    except SqlglotError as error:
        if word := _WORD_AS_PARAMETER.search(sql):
            raise SqlParametersWrong(
                reason=f"`{word.group(1)}` is an SQL keyword and cannot name a parameter",
                cure=f"Call it something else, for example `:{word.group(1)}_value`.",
            ) from error
        raise SqlUnreadable(dialect=dialect, reason=first_line(error)) from error
    except ValueError as error:
        raise SqlUnreadable(dialect=dialect, reason=first_line(error)) from error
    except (RecursionError, TooManySteps) as error:
        raise SqlUnreadable(dialect=dialect, reason="it is nested too deeply") from error
    statements = [s for s in parsed if s is not None and not isinstance(s, exp.Semicolon)]
    if len(statements) != 1:
        raise SqlNotOneSelect(found=f"{len(statements)} statements")
    return _as_query(statements[0])


def _as_query(statement: exp.Expr) -> exp.Query:
    if isinstance(statement, exp.Subquery) and is_bare(statement):
        return _as_query(statement.this)
    if isinstance(statement, exp.Select | exp.SetOperation | exp.Subquery):
        return statement
    raise SqlNotOneSelect(found=f"a {name_of(statement)} statement")


def is_bare(query: exp.Subquery) -> bool:
    """Tell whether parentheses hold a query and nothing else."""
    return not any(value for key, value in query.args.items() if key != "this")


def first_line(error: Exception) -> str:
    """Return the first line of a sqlglot error, without its colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return text[0][:200] if text else type(error).__name__


def name_of(node: exp.Expr) -> str:
    """Return the name of a part of a query in SQL terms."""
    if isinstance(node, exp.Command):
        return str(node.this).upper()
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()


def article(noun: str) -> str:
    """Return the noun with its article."""
    return f"an {noun}" if noun[:1] in "AEIOU" else f"a {noun}"


def excerpt(node: exp.Expr, dialect: str) -> str:
    """Return the first characters of a part of a query."""
    return str(node.sql(dialect=grammar_of(dialect), comments=False))[:80]
