"""Validates the request bodies of OpenAI's API before a call is made.

Only what the gateway itself reads is checked; other fields are forwarded to the backend unchanged,
or not at all (`core/calls/body_fields.py`).
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hocket.gateway.api.http.body_types import (
    MAX_CHOICES,
    MAX_MESSAGES,
    MAX_TEXTS,
    MAX_TOOLS,
    Apart,
    BodyInvalid,
    Count,
    JsonObject,
    Least,
    Listed,
    Model,
    PlainToken,
    Token,
    whole,
)
from hocket.gateway.api.http.responses_body import ResponseBody, check_fields
from hocket.gateway.core.protocols.json_size import MAX_VALUES, few_values
from hocket.gateway.core.protocols.openai_api import CHAT, COMPLETIONS, EMBEDDINGS
from hocket.gateway.core.protocols.responses.request import RESPONSES
from hocket.schemas.checks.first_fault import deepest_fault
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput


class BodyTooManyValues(HocketError):
    """The body has more than {limit} values. Send less at once."""

    code = "body_too_large"
    error_class = ErrorClass.INVALID


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    model: Model
    stream: bool | None = None
    stream_options: JsonObject | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), BeforeValidator(whole)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES), BeforeValidator(whole)] | None = None
    max_tokens: Count | None = None
    min_tokens: Least | None = None


class ChatTurn(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str | Listed[Apart[JsonObject]] | None = None
    tool_calls: Listed[Apart[JsonObject]] | None = None
    tool_call_id: str | None = None


class ChatBody(_Body):
    """A chat completion."""

    messages: Annotated[Listed[Apart[ChatTurn]], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Count | None = None
    tools: Annotated[Listed[Apart[JsonObject]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | JsonObject | None = None
    response_format: JsonObject | None = None


class CompletionBody(_Body):
    """A legacy completion: a prompt as text or token ids, or several of them."""

    prompt: (
        str
        | Listed[str]
        | Listed[PlainToken]
        | Listed[Listed[PlainToken]]
        | Listed[Token]
        | Listed[Listed[Token]]
    )
    max_completion_tokens: Count | None = None


class EmbeddingBody(BaseModel):
    """Texts, or lists of token ids, to embed."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: Model
    input: (
        str
        | Annotated[Listed[str], Field(min_length=1, max_length=MAX_TEXTS)]
        | Annotated[Listed[PlainToken], Field(min_length=1)]
        | Annotated[Listed[Listed[PlainToken]], Field(min_length=1, max_length=MAX_TEXTS)]
        | Annotated[Listed[Token], Field(min_length=1)]
        | Annotated[Listed[Listed[Token]], Field(min_length=1, max_length=MAX_TEXTS)]
    )
    encoding_format: Annotated[str, Field(pattern="^(float|base64)$")] | None = None
    dimensions: Count | None = None


BODIES: Mapping[str, type[BaseModel]] = {
    CHAT: ChatBody,
    COMPLETIONS: CompletionBody,
    EMBEDDINGS: EmbeddingBody,
    RESPONSES: ResponseBody,
}
_COUNTS = (
    "n",
    "best_of",
    "min_tokens",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "dimensions",
)
"""Fields that those who read the body look for as integers."""


def read(path: str, content: bytes) -> dict[str, Any]:
    """Return the parsed body of a request, or raise BodyInvalid.

    It is unchanged, except that a count such as 5.0 becomes 5.
    """
    if not few_values(content):
        raise BodyTooManyValues(limit=MAX_VALUES)
    try:
        body = parse_json(content, "body")
    except InvalidInput as error:
        place = error.fields["field"].removeprefix("body.")
        raise BodyInvalid(field=place, reason=error.fields["reason"]) from None
    if not isinstance(body, dict):
        raise BodyInvalid(field="body", reason="it is not a JSON object")
    if path == RESPONSES:
        check_fields(body)
    return checked(path, body)


def checked(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body whose counts are integers, or raise BodyInvalid."""
    try:
        valid = BODIES[path].model_validate(body)
    except ValidationError as error:
        fault = deepest_fault(error, body)
        raise BodyInvalid(field=fault.field("body"), reason=fault.reason) from error
    counts = {name: getattr(valid, name) for name in _COUNTS if isinstance(body.get(name), float)}
    return {**body, **counts} if counts else body
