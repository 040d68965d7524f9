"""Writes the statement that runs: from the checked tree, without comments, with a row limit."""

import itertools
import re
from collections.abc import Sequence
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError
from sqlglot.tokenizer_core import TokenType

from hocket.workers.sql.errors import (
    SqlConstructRefused,
    SqlFunctionRefused,
    SqlParametersWrong,
    SqlUnreadable,
)
from hocket.workers.sql.guard import functions
from hocket.workers.sql.guard.grammar import grammar_of
from hocket.workers.sql.guard.reading import first_line, is_bare, parse

MAX_PARAMETERS: Final = 256

_OPEN, _CLOSE = "\x01", "\x02"
_PLACEHOLDER = re.compile(f"{_OPEN}([A-Za-z_][A-Za-z0-9_]*){_CLOSE}")


def limit(tree: exp.Query, rows: int) -> exp.Query:
    """Limit the rows, in the query's own LIMIT if that keeps its meaning, and otherwise around it."""
    own = tree.args.get("limit")
    if own is None and not isinstance(tree, exp.Subquery):
        return tree.limit(rows, copy=False)
    if isinstance(own, exp.Limit) and _plain_number(own.expression) is not None:
        if (_plain_number(own.expression) or 0) > rows:
            own.set("expression", exp.Literal.number(rows))
        return tree
    inner = tree if isinstance(tree, exp.Subquery) else exp.Subquery(this=tree)
    if isinstance(tree, exp.Subquery) and not is_bare(tree):
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


def write(tree: exp.Query, dialect: str) -> tuple[str, ...]:
    """Return SQL text and parameter names, alternating."""
    placeholders = list(tree.find_all(exp.Placeholder))
    if len(placeholders) > MAX_PARAMETERS:
        raise SqlParametersWrong(
            reason=f"there are more than {MAX_PARAMETERS} placeholders",
            cure="Pass a list: `= ANY(:ids)`.",
        )
    for node in placeholders:
        node.replace(exp.Var(this=f"{_OPEN}{node.this}{_CLOSE}"))
    try:
        text = tree.sql(
            dialect=grammar_of(dialect), comments=False, unsupported_level=ErrorLevel.RAISE
        )
    except UnsupportedError as error:
        raise SqlConstructRefused(
            construct=f"what {dialect} does not have ({first_line(error)})",
            cure=f"Write the query as {dialect} reads it.",
        ) from error
    except (SqlglotError, RecursionError) as error:
        raise SqlUnreadable(dialect=dialect, reason=first_line(error)) from error
    return tuple(_PLACEHOLDER.split(text))


def check_written(sql: str, dialect: str) -> None:
    """Parse the written statement again; it must read the same, and call nothing denied."""
    if named(write(parse(sql, dialect), dialect)) != sql:
        raise SqlUnreadable(dialect=dialect, reason="it is not read the same way twice")
    tokens = sqlglot.tokenize(sql, dialect=grammar_of(dialect))
    for token, following in itertools.pairwise(tokens):
        called = following.token_type is TokenType.L_PAREN
        if called and token.token_type is not TokenType.STRING:
            _check_called(token.text, dialect)


def _check_called(name: str, dialect: str) -> None:
    if functions.is_denied(dialect, name):
        raise SqlFunctionRefused(
            function=name.lower(),
            reason="can reach beyond the allowed tables",
            cure="It cannot be allowed; if it is a name of your own, rename it.",
        )


def named(segments: Sequence[str]) -> str:
    """Return the statement with `:name` parameters."""
    return "".join(f":{text}" if i % 2 else text for i, text in enumerate(segments))
