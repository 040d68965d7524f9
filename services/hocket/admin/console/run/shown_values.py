"""Inputs and outputs as pages show them: indented, and cut. Only the beginning of a large value is read,
because to read and parse all of it takes long."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from hocket.admin.console.rendering import MAX_SHOWN_CHARS, cut_after
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.admin.runs import reads as runs

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|(?:[^"\[\]{}]+|\[\]|\{\})+|[\[\]{}]', re.DOTALL)
"""Strings, also one that is cut; all between two strings or brackets, with empty lists and objects; and
brackets."""
_INDENTATION = "  "
_READ_CHARS = MAX_SHOWN_CHARS + 1
"""Indented, a value is at least as long as stored: a longer one is cut in any case."""

OF_RUN = """
SELECT left(input::text, $3) AS input,
       CASE WHEN $4 THEN left(coalesce(output, 'null')::text, $3) END AS output,
       CASE WHEN $5 THEN md5(input::text) END AS input_digest,
       CASE WHEN $5 THEN md5(coalesce(output, 'null')::text) END AS output_digest
FROM hocket.run WHERE tenant = $1 AND run_id = $2
"""
"""The beginnings of a run's input and output, and, if requested, digests of all of them."""

OF_STEP = """
SELECT left(coalesce(input, 'null')::text, $3) AS input,
       left(coalesce(output, 'null')::text, $3) AS output
FROM hocket.step WHERE run_id = $1 AND key = $2
"""
"""The beginnings of a step's input and output."""


@dataclass(frozen=True, slots=True)
class ValueTexts:
    """An input and an output as stored, or the beginnings of long ones; None if they were not
    requested."""

    input: str | None = None
    output: str | None = None
    input_digest: str | None = None
    output_digest: str | None = None

    def shown(self) -> Self:
        """Return them as shown. It can take long, so it is called in a thread."""
        return replace(self, input=_shown(self.input), output=_shown(self.output))


async def of_run(
    pool: Pool, tenant: str, run_id: str, *, output: bool = True, digests: bool = False
) -> ValueTexts:
    """Return a run's input and, if `output`, its output; if `digests`, with digests of the whole
    values. Raises RunUnknown: the run may have been deleted since its row was read."""
    asked = (tenant, run_id, _READ_CHARS, output, digests)
    row = await pool.fetchrow(OF_RUN, *asked, timeout=QUERY_TIMEOUT_S)
    if row is None:
        raise await runs.unknown_run(pool, run_id)
    return ValueTexts(**row)


async def of_step(pool: Pool, run_id: str, step: str) -> ValueTexts:
    """Return a step's input and output, or raise StepUnknown."""
    row = await pool.fetchrow(OF_STEP, run_id, step, _READ_CHARS, timeout=QUERY_TIMEOUT_S)
    if row is None:
        raise runs.StepUnknown(run_id=run_id, step=step)
    return ValueTexts(**row)


def _shown(text: str | None) -> str | None:
    return None if text is None else indented(text)


def indented(text: str) -> str:
    """Return a value, or the beginning of one, as JSON that is indented and cut as by `pretty`.
    `text` is of type jsonb. Its numbers and strings stay as they are stored: parsed and written again,
    0.0000001 would be 1e-07. Pure."""
    return cut_after(_pieces(text), MAX_SHOWN_CHARS)


def _pieces(text: str) -> Iterator[str]:
    line = "\n"
    for found in _TOKENS.finditer(text):
        token = found[0]
        if token in ("[", "{"):
            line += _INDENTATION
            yield token + line
        elif token in ("]", "}"):
            line = line.removesuffix(_INDENTATION)
            yield line + token
        elif token[0] == '"':
            yield token
        else:  # with no more lines than are shown: there can be many, each far to the right
            yield token.replace(", ", "," + line, MAX_SHOWN_CHARS // len(line) + 1)
