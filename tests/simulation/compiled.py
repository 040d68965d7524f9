"""Plans of pipelines, compiled once for all processes and plays: compiling is pure, and slow."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any
from unittest import mock

from pydantic_core import from_json, to_json

from hocket.coordinator import catalog
from hocket.schemas.pipeline import expressions
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from simulation.database import Database

_compile_text = lru_cache(20_000)(expressions._compile_text)
_compile_expression = lru_cache(20_000)(expressions._compile_expression)


@contextmanager
def shared() -> Iterator[None]:
    """Let coordinators take plans from here."""
    with ExitStack() as stack:
        for place, name, value in (
            (expressions, "_compile_text", _compile_text),
            (expressions, "_compile_expression", _compile_expression),
            (catalog, "compile_pipeline", compiled),
        ):
            stack.enter_context(mock.patch.object(place, name, value))
        yield


def compiled(document: Mapping[str, Any], *, applied: bool = False) -> Plan:
    """Return the plan of a document, or raise InvalidInput."""
    return _compiled(to_json(document), applied=applied)


def plan_of(database: Database, tenant: str, pipeline: str, version: int) -> Plan:
    """Return the plan of a version that is in the database."""
    text = database.pipelines[tenant, pipeline][version].encode()
    return _compiled(text, applied=True)


@lru_cache(1_000)
def _compiled(text: bytes, *, applied: bool) -> Plan:
    return compile_pipeline(from_json(text), applied=applied)
