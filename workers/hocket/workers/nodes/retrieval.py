"""The `retrieval` node: searches an indexed collection with one or more queries, and fuses the results.

A collection that was indexed with an embedding model is searched with vectors of the same model. The
gateway makes them, and their cost is added to the step's spend.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg

from hocket.kit.postgres.database import said
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.pipeline.spec import RetrievalNode as RetrievalSpec
from hocket.workers.call_time import call_time_ms
from hocket.workers.nodes.prompts.templates import render_value
from hocket.workers.retrieval.connections import IndexConnections
from hocket.workers.retrieval.search import check_queries, embedding_model, search
from hocket.workers.runtime.execution.context import Context

COMPONENT = "retrieval"


class IndexUnavailable(HocketError):
    """The index cannot be searched now: {reason}. Check that Postgres runs and that DATABASE_URL is
    right."""

    code = "index_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class ContextEmbedder:
    """Makes vectors through the gateway, on behalf of one attempt."""

    def __init__(self, context: Context, model: str) -> None:
        self._context = context
        self._model = model

    @property
    def model(self) -> str:
        """The logical name of the embedding model."""
        return self._model

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text."""
        reply = await self._context.model(self._model, task="embed", embed=texts)
        return [list(vector) for vector in reply.embeddings]


class RetrievalNode:
    """Searches collections over the connections of one worker."""

    def __init__(self, index: IndexConnections) -> None:
        self._index = index

    async def __call__(self, context: Context) -> dict[str, Any]:
        """Return `{queries, passages: [{id, text, title, source, start, end, score, ...}]}`."""
        collection = context.config["collection"]
        queries = queries_of(context.config.get("query"), context.input)
        with _typed_errors():
            model = await embedding_model(
                self._index, collection, tenant=context.tenant, timeout_ms=call_time_ms(context)
            )
            passages = await search(
                self._index,
                collection,
                queries,
                tenant=context.tenant,
                top_k=context.config.get("top_k") or RetrievalSpec.model_fields["top_k"].default,
                timeout_ms=call_time_ms(context),
                embedder=ContextEmbedder(context, model) if model else None,
            )
        return {"queries": queries, "passages": [passage.as_json() for passage in passages]}


def queries_of(template: str | None, step_input: Any) -> list[str]:
    """Return the queries of a step: the node's `query`, or otherwise `input.queries` or `input.query`.

    Empty and repeated queries are dropped. Raises InvalidInput if there are none, or too many, or if
    one is too long.
    """
    field, value = "query", None
    if template is not None:
        value = render_value(template, step_input, "query")
    elif isinstance(step_input, dict):
        field = next((name for name in ("queries", "query") if step_input.get(name)), "query")
        field, value = f"input.{field}", step_input.get(field)
    elif isinstance(step_input, str):
        field, value = "input", step_input
    found: list[Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(query, str) for query in found):
        raise InvalidInput(
            field=field,
            reason="a query must be text or a list of texts",
            cure="Set the node's `query`, or give `query` or `queries` in `with`.",
        )
    queries = list(dict.fromkeys(query.strip() for query in found if query.strip()))
    check_queries(queries, field)
    return queries


@contextmanager
def _typed_errors() -> Iterator[None]:
    """Turn what asyncpg raises because Postgres does not respond into IndexUnavailable."""
    try:
        yield
    except (
        OSError,
        asyncpg.PostgresConnectionError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        asyncpg.OperatorInterventionError,
        asyncpg.InsufficientResourcesError,
    ) as error:
        raise IndexUnavailable(reason=said(error), component=COMPONENT) from error
