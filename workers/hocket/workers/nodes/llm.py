"""The `llm` node: sends prompt and evidence to a model through the gateway; returns a cited answer."""

from typing import Any

from hocket.schemas.messages import CallReply
from hocket.schemas.openai.answers import finish_reason
from hocket.schemas.pipeline.spec import LlmNode as LlmSpec
from hocket.workers.nodes.prompts.evidence import citations, documents_of
from hocket.workers.nodes.prompts.structured import read_data
from hocket.workers.nodes.prompts.templates import render
from hocket.workers.runtime.execution.context import Context


async def run_llm(context: Context) -> dict[str, Any]:
    """Return `{text, data?, citations?, finish_reason, model, backend, usage}`.

    `data` is present with a `response_schema`, `citations` if the node has `documents`.
    """
    config = context.config
    schema = config.get("response_schema")
    found = documents_of(context.input, config.get("documents") or ())
    system = config.get("system")
    reply = await context.model(
        config["model"],
        render(config["prompt"], context.input, "prompt"),
        system=render(system, context.input, "system") if system else None,
        documents=[document for document, _ in found],
        task=config.get("task") or LlmSpec.model_fields["task"].default,
        context=_plain_input(context.input),
        max_tokens=config.get("max_tokens"),
        temperature=config.get("temperature"),
        response_schema=schema,
        requires=config.get("requires"),
    )
    output: dict[str, Any] = {
        "text": reply.text,
        "finish_reason": finish_reason(reply),
        "model": reply.model,
        "backend": reply.backend,
    }
    if schema is not None:
        output["data"] = await read_data(reply, schema)
    elif reply.data is not None:
        output["data"] = reply.data
    if found:
        output["citations"] = citations(reply.text, found)
    return output | {"usage": usage_of(reply)}


def usage_of(reply: CallReply) -> dict[str, Any]:
    """Return a call's usage in the form of a step's output."""
    return {
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "cached_tokens": reply.cached_tokens,
        "cost_usd": str(reply.cost_usd),
        "latency_ms": round(reply.latency_ms, 3),
    }


def _plain_input(step_input: Any) -> dict[str, Any]:
    """Return the question for built-in models, which read fields instead of prompts."""
    question = step_input.get("question") if isinstance(step_input, dict) else None
    return {"question": question} if isinstance(question, str) else {}
