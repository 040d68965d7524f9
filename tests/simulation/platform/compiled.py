"""Plans of pipelines, compiled once for all processes and plays, because compiling is pure and slow."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.storage.pipelines import pipeline_catalog
from hocket.schemas.pipeline import expressions
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from simulation.engine.database import Database
from simulation.engine.swaps import swapped

_compile_text = lru_cache(20_000)(expressions._compile_text)
_compile_expression = lru_cache(20_000)(expressions._compile_expression)


def shared() -> AbstractContextManager[None]:
    """Make coordinators use the plans of this module."""
    return swapped(
        (expressions, "_compile_text", _compile_text),
        (expressions, "_compile_expression", _compile_expression),
        (pipeline_catalog, "compile_pipeline", compiled),
        (pipeline_catalog, "PipelinePlan", for_runs),
    )


def compiled(document: Mapping[str, Any], *, applied: bool = False) -> Plan:
    """Return the plan of a document, or raise InvalidInput."""
    return _compiled(to_json(document), applied=applied)


@lru_cache(1_000)
def for_runs(plan: Plan) -> PipelinePlan:
    """Return a plan in the form that runs use."""
    return PipelinePlan(plan)


def plan_of(database: Database, tenant: str, pipeline: str, version: int) -> Plan:
    """Return the plan of a version in the database."""
    text = database.pipelines[tenant, pipeline][version].encode()
    return _compiled(text, applied=True)


@lru_cache(1_000)
def _compiled(text: bytes, *, applied: bool) -> Plan:
    return compile_pipeline(from_json(text), applied=applied)
