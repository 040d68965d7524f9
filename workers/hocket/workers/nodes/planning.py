"""The `planning` node: turns a question into smaller questions, searches, and queries of a catalog; or,
with `emit`, into steps.

The model gets the catalog without its SQL, and the values that parameters may have. Its answer is
checked here (see `catalog`). Of an answer with steps only its form is: the coordinator checks the
steps against the node's policy.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import TypeAdapter

from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import CallReply
from hocket.schemas.pipeline.node_parts import CatalogQuery, PlanPolicy
from hocket.schemas.pipeline.policy import LISTS, PlanRefused
from hocket.schemas.pipeline.spec import PlanningNode as PlanningSpec
from hocket.workers.errors import ModelReplyCut, ModelReplyInvalid
from hocket.workers.nodes import catalog as catalogs
from hocket.workers.nodes.llm import usage_of
from hocket.workers.nodes.prompts.structured import MODELS_LIMIT, read_data
from hocket.workers.nodes.prompts.templates import render
from hocket.workers.retrieval.search import as_query
from hocket.workers.runtime.execution.context import Context

EMIT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"nodes": {"type": "object", "minProperties": 1}, "output": {}},
    "required": ["nodes"],
}
"""What the model's backend is asked to hold the answer to."""
ANY_JSON: Mapping[str, Any] = {}
_CATALOG = TypeAdapter(tuple[CatalogQuery, ...])


class LoadsValues(Protocol):
    """Lists the values that a parameter may have."""

    async def load(self, tenant: str, database: str, sql: str, *, timeout_ms: float) -> list[Any]:
        """Return the values of a SELECT's only column."""
        ...


class PlanningNode:
    """Plans with a model; `values` loads the values of parameters."""

    def __init__(self, values: LoadsValues) -> None:
        self._values = values

    async def __call__(self, context: Context) -> dict[str, Any]:
        """Return `{question, questions, searches, queries: [{name, sql, params}], usage}`, or with
        `emit` `{nodes, output}`."""
        question = question_of(context.config.get("prompt"), context.input)
        if context.config.get("emit") is not None:
            return await _emit(context, question)
        return await self._plan(context, question)

    async def _plan(self, context: Context, question: str) -> dict[str, Any]:
        config = context.config
        catalog = _CATALOG.validate_python(config.get("catalog") or ())
        limit = config.get("max_queries")
        max_queries = PlanningSpec.model_fields["max_queries"].default if limit is None else limit
        values = await self._load(context, catalog)
        told = catalogs.described(catalog, values)
        schema = catalogs.response_schema(catalog, max_queries)
        reply = await context.model(
            config["model"],
            question,
            system=_PLAN_TEXT.format(
                catalog=json.dumps(told, ensure_ascii=False, default=str), max_queries=max_queries
            ),
            task="plan",
            context={
                "question": question,
                "catalog": [query.model_dump(mode="json") for query in catalog],
                "values": _by_select(catalog, values),
                "max_queries": max_queries,
            },
            response_schema=schema,
        )
        plan = await read_data(reply, schema, MODELS_LIMIT)
        return {
            "question": question,
            "questions": plan["questions"] or [question],
            "searches": plan["searches"] or [as_query(question)],
            "queries": catalogs.checked_queries(plan["queries"], catalog, values),
            "model": reply.model,
            "usage": usage_of(reply),
        }

    async def _load(self, context: Context, catalog: tuple[CatalogQuery, ...]) -> catalogs.Values:
        """Return the values of the parameters for which the catalog's author gave a SELECT."""
        values: dict[str, dict[str, list[Any]]] = {}
        for query in catalog:
            for name, param in query.params.items():
                if param.values is not None:
                    loaded = await self._values.load(
                        context.tenant,
                        _database(context.config, query.name, name),
                        param.values,
                        timeout_ms=context.deadline_at_ms - now_ms(),
                    )
                    values.setdefault(query.name, {})[name] = loaded
        return values


def _by_select(
    catalog: tuple[CatalogQuery, ...], values: catalogs.Values
) -> dict[str, Sequence[Any]]:
    """Return the values by SELECT, which is the form that built-in models take."""
    return {
        param.values: values[query.name][name]
        for query in catalog
        for name, param in query.params.items()
        if param.values is not None
    }


async def _emit(context: Context, question: str) -> dict[str, Any]:
    policy = PlanPolicy.model_validate(context.config["emit"])
    reply = await context.model(
        context.config["model"],
        question,
        system=_EMIT_TEXT.format(max_steps=policy.max_steps, may=_allowed(policy)),
        task="plan",
        context={"question": question, "emit": policy.model_dump(mode="json")},
        response_schema=dict(EMIT_SCHEMA),
    )
    emitted = await _emitted(reply)
    return {"nodes": emitted["nodes"], "output": emitted.get("output")}


async def _emitted(reply: CallReply) -> Mapping[str, Any]:
    """Return an answer that has `nodes`, whatever these are. Raises PlanRefused, like the coordinator
    for steps that it refuses, so that one `retry` covers both; and ModelReplyCut."""
    backend = reply.backend or reply.model
    try:
        emitted = await read_data(reply, dict(ANY_JSON), MODELS_LIMIT)
    except ModelReplyCut:
        raise
    except ModelReplyInvalid as error:
        raise PlanRefused(
            field="output", reason=error.fields["reason"], cure=_CURE, component=backend
        ) from None
    if not isinstance(emitted, Mapping) or "nodes" not in emitted:
        raise PlanRefused(field="output", reason="it has no `nodes`", cure=_CURE, component=backend)
    return emitted


def _allowed(policy: PlanPolicy) -> str:
    """Return what emitted nodes may use, one item per line."""
    return "\n".join(
        f"  {kind}: {', '.join(getattr(policy, kind))}" for kind in LISTS if getattr(policy, kind)
    )


def question_of(prompt: str | None, step_input: Any) -> str:
    """Return the question to plan for: the node's `prompt`, `input.question`, or a text input, in this
    order."""
    text: Any
    if prompt is not None:
        text = render(prompt, step_input, "prompt")
    elif isinstance(step_input, Mapping):
        text = step_input.get("question")
    else:
        text = step_input
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(
            field="input.question",
            reason="there is no question",
            cure="Set the node's `prompt`, or give `question` in `with`.",
        )
    return text.strip()


def _database(config: Mapping[str, Any], query: str, param: str) -> str:
    database = config.get("database")
    if not isinstance(database, str):
        raise InvalidInput(
            field="database",
            reason=f"the values of `{query}.{param}` are in a database",
            cure="Name it in the node's `database`.",
        )
    return database


_PLAN_TEXT = """\
You plan how to answer the user's question; you do not answer it.
Reply with one JSON object:
  questions: the question split into the smallest questions that answer it together;
  searches: phrases to look for in a collection of documents;
  queries: at most {max_queries} queries from the catalog, each {{"name": ..., "params": {{...}}}}.
Use only queries and parameters of the catalog. Where a parameter lists `values`, use one of them.
Choose no query where none fits.
Catalog:
{catalog}
"""

_CURE = "Emit `{nodes: {...}, output: ...}`."
_EMIT_TEXT = """\
You plan steps that answer the user's question; you do not answer it.
Reply with one JSON object {{"nodes": {{NAME: NODE, ...}}, "output": VALUE}}, at most {max_steps} nodes.
Each node has a `type`, the fields of that type, and `with`: its input. Nodes may use only
{may}
A text is taken as it is written. A value that is as a whole one reference, such as
"{{{{ nodes.NAME.output.FIELD }}}}" or "{{{{ input.FIELD }}}}", stands for what it names: dotted names,
nothing before or behind it, no filters and no expressions.
"""
