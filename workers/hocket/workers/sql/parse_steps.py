"""sqlglot parsers that count their steps, so that no text takes them long.

sqlglot backtracks: it tries one reading, goes back and tries another. If such tries nest
(`date(date(...))`, `{a: {a: ...}}`, `char(char(...))`), each level doubles the work: 25 levels, in 150
characters, would take hours. So every step from token to token is counted, backward ones too. Ordinary
queries need up to four steps per token.
"""

from typing import Final

from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.sqlite import SQLite

STEPS_PER_TOKEN: Final = 20
FREE_STEPS: Final = 1_000


class TooManySteps(Exception):
    """A text needs more steps than it may take."""


class CountedParser:
    """A mixin for a sqlglot parser, which raises TooManySteps."""

    _tokens_size: int
    _steps = 0

    def reset(self) -> None:
        """Start another text."""
        self._steps = 0
        super().reset()  # type: ignore[misc]

    def _advance(self, times: int = 1) -> None:
        self._steps += 1
        if self._steps > STEPS_PER_TOKEN * self._tokens_size + FREE_STEPS:
            raise TooManySteps
        super()._advance(times)  # type: ignore[misc]


def _counted(base: type[Dialect]) -> type[Dialect]:
    """Return a dialect whose parser counts, and which keeps the indexes of arrays as they are; sqlglot
    would recompute them, which is slow for `x[1][1]...`. It is known as `hocket...`."""
    parser = type("Parser", (CountedParser, base.parser_class), {})
    return type(f"Hocket{base.__name__}", (base,), {"Parser": parser, "INDEX_OFFSET": 0})


COUNTED: Final[dict[str, str]] = {
    "sqlite": _counted(SQLite).__name__.lower(),
    "mysql": _counted(MySQL).__name__.lower(),
    "duckdb": _counted(DuckDB).__name__.lower(),
}
"""By dialect: the name under which sqlglot knows the counting grammar."""
