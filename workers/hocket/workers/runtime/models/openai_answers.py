"""The answers of models that speak OpenAI's API, as far as this worker reads them. Pure."""

from typing import Any

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import CallReply
from hocket.schemas.openai.answers import CHAT, EMBEDDINGS


class ModelAnswerMalformed(HocketError):
    """The answer of model `{model}` cannot be read: `{field}` {reason}. Look at what its server
    sends."""

    code = "model_answer_malformed"
    error_class = ErrorClass.TRANSIENT
    retryable = True


def checked(path: str, reply: CallReply) -> CallReply:
    """Return the reply to a request for an endpoint; with an error, ModelAnswerMalformed, in place of an
    answer that nobody could read."""
    if reply.openai is None or reply.error is not None or path == EMBEDDINGS:
        return reply
    fault = _fault(path, reply.openai.get("choices"))
    if fault is None:
        return reply
    field, reason = fault
    error = ModelAnswerMalformed(model=reply.model, field=field, reason=reason).info()
    return reply.model_copy(update={"openai": None, "error": error})


def _fault(path: str, choices: Any) -> tuple[str, str] | None:
    """Return the place of what is wrong with the choices, and what it is, or None."""
    if not _is_list_of_objects(choices):
        return "choices", _NO_LIST
    for index, choice in enumerate(choices if path == CHAT else ()):
        message, place = choice.get("message"), f"choices.{index}.message"
        if not isinstance(message, dict):
            return place, "is not an object"
        calls = message.get("tool_calls")
        if calls is not None and not _is_list_of_objects(calls):
            return f"{place}.tool_calls", _NO_LIST
    return None


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


_NO_LIST = "is not a list of objects"
