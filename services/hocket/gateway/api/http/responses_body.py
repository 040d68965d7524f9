"""Validates the request bodies of OpenAI's Responses API before a call is made.

Fields that require stored state, or tools that the gateway would have to run, are refused by name.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from hocket.gateway.api.http.body_types import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Apart,
    BodyInvalid,
    Count,
    JsonObject,
    Least,
    Listed,
    Model,
)
from hocket.gateway.core.protocols.responses.request import CHAT_ONLY

MAX_FUNCTION_CHARS = 128
MAX_METADATA_PAIRS = 16
"""The most pairs of `metadata`; they come back in the answer."""
MAX_METADATA_NAME_CHARS = 64
MAX_METADATA_CHARS = 512
_NOT_KEPT = "nothing is stored between calls; send the whole conversation in `input`"
_REFUSED: Mapping[str, str] = {
    "previous_response_id": _NOT_KEPT,
    "conversation": _NOT_KEPT,
    "prompt": "no prompts are stored here; send `instructions` and `input`",
    "store": "responses are not stored; leave it out, or send false",
    "background": "calls are answered synchronously; leave it out, or send false",
    "top_logprobs": "log probabilities are available only in chat completions",
}
"""Fields that must be empty, and why."""

Name = Annotated[str, Field(min_length=1, max_length=MAX_FUNCTION_CHARS)]
CallId = Annotated[str, Field(min_length=1)]
Metadata = Annotated[
    dict[
        Annotated[str, Field(max_length=MAX_METADATA_NAME_CHARS)],
        Annotated[str, Field(max_length=MAX_METADATA_CHARS)],
    ],
    Field(max_length=MAX_METADATA_PAIRS),
]


def _no(value: Any) -> Any:
    """Return False; refuse 0, although it equals False."""
    if value is not False:
        raise ValueError("it is not false")
    return value


No = Annotated[Literal[False], BeforeValidator(_no)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class InputText(_Part):
    """Text of a user, a developer or a system."""

    type: Literal["input_text"]
    text: str


class OutputText(_Part):
    """Text of an assistant."""

    type: Literal["output_text"]
    text: str


class Refusal(_Part):
    """What an assistant said instead of an answer."""

    type: Literal["refusal"]
    refusal: str


class InputImage(_Part):
    """An image by URL; a data URL holds it."""

    type: Literal["input_image"]
    image_url: str
    detail: Literal["low", "high", "auto", "original"] | None = None


class InputFile(_Part):
    """A file's content as a data URL."""

    type: Literal["input_file"]
    file_data: str
    filename: str | None = None


Content = Annotated[
    InputText | OutputText | Refusal | InputImage | InputFile, Field(discriminator="type")
]
Output = Annotated[InputText | InputImage | InputFile, Field(discriminator="type")]


class InputMessage(_Part):
    """A message of the conversation, including earlier answers."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Listed[Apart[Content]]


class FunctionCall(_Part):
    """A call of a function that the model made."""

    type: Literal["function_call"]
    call_id: CallId
    name: Name
    arguments: str


class FunctionCallOutput(_Part):
    """The output of a called function."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: str | Listed[Apart[Output]]


class Reasoning(_Part):
    """The model's reasoning, as returned in an earlier response; `encrypted_content` is read, and the
    `reasoning_text` of its `content`."""

    type: Literal["reasoning"]
    encrypted_content: str | None = None


def _kind(item: Any) -> Any:
    """Return the type of an item; messages may omit it."""
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    return "message" if kind is None else kind


Item = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[Reasoning, Tag("reasoning")],
    Discriminator(_kind),
]


class FunctionTool(_Part):
    """A function that the model may call; the caller runs it."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class ChosenFunction(_Part):
    """The function that must be called."""

    type: Literal["function"]
    name: Name


class PlainFormat(_Part):
    """Text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(_Part):
    """JSON that matches a schema."""

    type: Literal["json_schema"]
    name: Name
    json_schema: Annotated[JsonObject, Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


class TextOptions(_Part):
    """The format of the answer."""

    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(_Part):
    """How much reasoning precedes the answer."""

    effort: Annotated[str, Field(min_length=1, max_length=32)] | None = None


Includable = Literal[
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "message.input_image.image_url",
]
"""The accepted values of `include`: all except log probabilities. Those about tools that are not
run here have no effect."""


class ResponseBody(BaseModel):
    """A response: the whole conversation in, the model's next items out."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: Model
    input: str | Annotated[Listed[Apart[Item]], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: Count | None = None
    min_tokens: Least | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    tools: Annotated[Listed[Apart[FunctionTool]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenFunction | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: Listed[Includable] | None = None
    metadata: Metadata | None = None
    truncation: Literal["disabled"] | None = None
    store: No | None = None
    background: No | None = None


def check_fields(body: Mapping[str, Any]) -> None:
    """Raise BodyInvalid for a field not supported by this endpoint, with what to do instead."""
    for name, reason in _REFUSED.items():
        if body.get(name) not in (None, False):
            raise BodyInvalid(field=name, reason=reason)
    if body.get("truncation") == "auto":
        raise BodyInvalid(field="truncation", reason="the input cannot be truncated; send less")
    for name in sorted(body.keys() & CHAT_ONLY):
        if body[name] is not None:
            reason = "it is a field of chat completions, not of responses"
            raise BodyInvalid(field=name, reason=reason)
