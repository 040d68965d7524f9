"""`hocket-extractive` as the gateway calls it: an async function from CallRequest to Completion.

Task `plan` reads `question`, `catalog`, `values` and `max_queries` from the request's context; tasks
`answer` and `chat` answer the context's `question`, or otherwise the last user message, from the
documents. It selects and cites but does not generate, makes no vectors, and costs nothing; its tokens
are words.
"""

import asyncio
import json
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import CallRequest, Completion, Document
from hocket.schemas.pipeline.node_parts import CatalogQuery
from hocket.workers.extractive.answering import answer
from hocket.workers.extractive.effort import Check, GivenUp, unbounded
from hocket.workers.extractive.planning import DEFAULT_MAX_QUERIES, plan_question

THREADS = 4
"""The threads for it, apart from those that everything else in the process uses."""
_THREADS = ThreadPoolExecutor(THREADS, "hocket-extractive")
_CATALOG = TypeAdapter(tuple[CatalogQuery, ...])


class ExtractiveCannot(HocketError):
    """The built-in model cannot do this: {reason}. Configure a model that can under `models:`."""

    code = "extractive_cannot"
    error_class = ErrorClass.INVALID


async def complete(request: CallRequest) -> Completion:
    """Return a plan or an answer; `data` holds it as JSON. Raises ExtractiveCannot. The work ends soon
    after this is cancelled."""
    is_over = threading.Event()

    def check() -> None:
        if is_over.is_set():
            raise GivenUp

    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_THREADS, completion_of, request, check)
    finally:
        is_over.set()


def completion_of(request: CallRequest, check: Check = unbounded) -> Completion:
    """Return the same as `complete`. `check` is called again and again, and may raise to stop the
    work."""
    if request.embed:
        raise ExtractiveCannot(reason="it does not make embeddings")
    if request.task == "plan":
        data = _plan(request, check)
        text = json.dumps(data, ensure_ascii=False)
    elif request.response_schema is not None:
        raise ExtractiveCannot(reason="it does not write JSON for a schema")
    else:
        draft = answer(
            _question(request),
            [one for one in request.documents if one.kind == "passage"],
            [one for one in request.documents if one.kind == "table"],
            check,
        )
        data, text = draft.as_json(), draft.text
    return Completion(
        text=text,
        data=data,
        input_tokens=_word_count(_read_texts(request)),
        output_tokens=_word_count([text]),
        finish_reason="stop",
    )


def _plan(request: CallRequest, check: Check) -> dict[str, Any]:
    context = request.context
    try:
        catalog = _CATALOG.validate_python(context.get("catalog") or ())
    except ValidationError as error:
        raise ExtractiveCannot(reason=f"the catalog is not valid: {error}") from error
    values = context.get("values")
    limit = context.get("max_queries")
    return plan_question(
        _question(request),
        catalog,
        values if isinstance(values, Mapping) else {},
        max_queries=limit if isinstance(limit, int) else DEFAULT_MAX_QUERIES,
        check=check,
    ).as_json()


def _question(request: CallRequest) -> str:
    asked = request.context.get("question")
    if isinstance(asked, str) and asked.strip():
        return asked
    said = [message.content for message in request.messages if message.role == "user"]
    if not said or not said[-1].strip():
        raise ExtractiveCannot(reason="there is no question in the call")
    return said[-1]


def _read_texts(request: CallRequest) -> Iterable[str]:
    yield from (message.content for message in request.messages)
    for document in request.documents:
        yield from _texts_of(document)


def _texts_of(document: Document) -> Iterable[str]:
    yield document.title
    yield document.text
    yield " ".join(document.columns)
    yield from (" ".join(map(str, row)) for row in document.rows)


def _word_count(texts: Iterable[str]) -> int:
    return sum(len(text.split()) for text in texts)
