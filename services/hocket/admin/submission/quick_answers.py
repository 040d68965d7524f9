"""The fast path of `POST /v1/runs` and `POST /v1/bulk/runs`, for requests without errors."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.types import Scope

from hocket.admin.context import Context
from hocket.admin.requests.identity import TENANT_HEADER, Caller, caller_of
from hocket.admin.requests.json_bodies import BODY
from hocket.admin.runs.content import shown
from hocket.admin.submission.many import submit_all
from hocket.admin.submission.one import merged_key, submit, valid_trace
from hocket.admin.submission.quick_route import QuickAnswer, QuickRoute
from hocket.schemas.administration.bulk import BulkSubmission
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput
from hocket.schemas.rest import Key, RunResult, RunSubmission, Token

M = TypeVar("M", bound=BaseModel)

_KEY: TypeAdapter[str] = TypeAdapter(Key)
_TOKEN: TypeAdapter[str] = TypeAdapter(Token)
_TENANT = TENANT_HEADER.lower().encode()


def quick_routes(router: APIRouter, context: Context) -> list[QuickRoute]:
    """Return the routes, which have to come before the others of `router`."""

    def route(
        path: str, answer: Callable[[Context, Scope, bytes], Awaitable[QuickAnswer | None]]
    ) -> QuickRoute:
        return QuickRoute(router, path, "POST", lambda scope, body: answer(context, scope, body))

    return [route("/v1/runs", _submit_run), route("/v1/bulk/runs", _submit_runs)]


async def _submit_run(context: Context, scope: Scope, body: bytes) -> QuickAnswer | None:
    headers = dict(scope["headers"])
    task, caller = _read(RunSubmission, body), _caller(scope, headers)
    key = headers.get(b"idempotency-key")
    if task is None or caller is None or not _fits(_KEY, key):
        return None
    trace = headers.get(b"traceparent")
    answer = await submit(
        context,
        caller,
        merged_key(task, None if key is None else key.decode("latin-1")),
        traceparent=None if trace is None else valid_trace(trace.decode("latin-1")),
    )
    answer = shown(answer, caller)
    status = 200 if isinstance(answer, RunResult) else 202
    return QuickAnswer(status, _json(answer), f"/v1/runs/{answer.run_id}")


async def _submit_runs(context: Context, scope: Scope, body: bytes) -> QuickAnswer | None:
    asked, caller = _read(BulkSubmission, body), _caller(scope, dict(scope["headers"]))
    if asked is None or caller is None:
        return None
    return QuickAnswer(202, _json(await submit_all(context, caller, asked.runs)))


def _read(model: type[M], body: bytes) -> M | None:
    try:
        return model.model_validate(parse_json(body, BODY))
    except (InvalidInput, ValidationError):
        return None


def _caller(scope: Scope, headers: dict[bytes, bytes]) -> Caller | None:
    return caller_of(scope) if _fits(_TOKEN, headers.get(_TENANT)) else None


def _fits(kind: TypeAdapter[str], header: bytes | None) -> bool:
    """Tell whether a header is absent or valid."""
    if header is None:
        return True
    try:
        kind.validate_python(header.decode("latin-1"))
    except ValidationError:
        return False
    return True


def _json(answer: BaseModel) -> bytes:
    return answer.__pydantic_serializer__.to_json(answer, by_alias=True)
