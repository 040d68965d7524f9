"""Converts a call to tensors for a model on Triton, and the model's output tensors to a completion.

A model describes its own inputs and outputs. Names from the configuration have priority, then the
usual ones (`text_input`, `text_output`), then the only tensor that fits. A call with
`context.tensors` supplies inputs by name and gets every output in `data`. Of a call's parameters,
the model gets those it has an input for.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hocket.gateway.core.calls.prompt import chat_messages
from hocket.gateway.core.protocols.json_size import answer_value
from hocket.gateway.core.protocols.openai_api import MAX_CALL_TOKENS
from hocket.gateway.core.protocols.tensors import (
    BYTES,
    FLOATS,
    Tensor,
    TensorInvalid,
    decoded,
    encoded,
)
from hocket.gateway.core.protocols.vectors import NO_VECTOR, is_vector
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import CallRequest, Completion

TENSORS = "tensors"
_TEXT_INPUTS = ("text_input", "prompt", "text")
_TEXT_OUTPUTS = ("text_output", "text")


class InterfaceUnsuited(HocketError):
    """Model `{model}` has no {what}. Name it under `triton:` of the backend; there are: {known}."""

    code = "interface_unsuited"
    error_class = ErrorClass.PERMANENT


@dataclass(frozen=True, slots=True)
class TritonOptions:
    """The model version to ask, and the roles of the model's tensors.

    Tensors whose name is empty are detected automatically, or not used.
    """

    version: str = ""
    text_input: str = ""
    messages_input: str = ""
    """The input that gets the messages as JSON, instead of a prompt."""
    text_output: str = ""
    embedding_output: str = ""
    finish_reason: str = ""
    input_tokens: str = ""
    output_tokens: str = ""
    cached_tokens: str = ""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model: its datatype and shape, -1 for any size."""

    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Interface:
    """The inputs and outputs of a model. If `max_batch` is above 0,
    the first dimension is the batch."""

    model: str
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    max_batch: int = 0
    decoupled: bool = False


TRITON_FIELDS = tuple(field.name for field in fields(TritonOptions))


def requests(
    call: CallRequest, interface: Interface, names: TritonOptions
) -> tuple[tuple[Tensor, ...], ...]:
    """Return the inputs of each request that a call needs: one request,
    or as many as its texts require."""
    if call.embed:
        name = _text_input(interface, names, ())
        port = interface.inputs[name]
        size = _batch_size(interface, port)
        groups = (call.embed[at : at + size] for at in range(0, len(call.embed), size))
        return tuple((_texts(name, port, group),) for group in groups)
    return (tuple(_inputs(call, interface, names)),)


def completion(
    call: CallRequest,
    interface: Interface,
    names: TritonOptions,
    answers: Sequence[Mapping[str, Tensor]],
) -> Completion:
    """Return the completion from the answers to a call's requests; several answers to one request
    are parts of it."""
    counts = counted(names, answers)
    if call.embed:
        output = _embedding_output(interface, names)
        vectors = tuple(vector for answer in answers for vector in _vectors(_get(answer, output)))
        return Completion(embeddings=vectors, finish_reason="stop", **counts)
    wants_all = TENSORS in call.context
    output = _text_output(interface, names, needed=not wants_all)
    if answers and not (wants_all or interface.decoupled or _tell(answers, output, names)):
        raise missing(output)
    text = "".join(text_of(answer, output) for answer in answers) if output else ""
    reason = _first(answers[-1].get(names.finish_reason)) if answers else None
    return Completion(
        text=text,
        data=_data(answers) if wants_all else _json(text, call),
        finish_reason=reason if isinstance(reason, str) and reason else "stop",
        **counts,
    )


def counted(names: TritonOptions, answers: Sequence[Mapping[str, Tensor]]) -> dict[str, int]:
    """Return the token counts in the answers to a call's requests, as fields of a completion."""
    return {
        field: sum(_count(answer, output) for answer in answers)
        for field, output in _counts(names)
        if output
    }


def text_of(answer: Mapping[str, Tensor], output: str) -> str:
    """Return the text in one answer; empty if it has no such output, as some of several have none."""
    text = _first(answer.get(output))
    return text if isinstance(text, str) else ""


def text_output(interface: Interface, names: TritonOptions) -> str:
    """Return the name of the output with the text, or raise InterfaceUnsuited."""
    return _text_output(interface, names, needed=True)


def _inputs(call: CallRequest, interface: Interface, names: TritonOptions) -> Iterator[Tensor]:
    given = call.context.get(TENSORS, {})
    if not isinstance(given, dict):
        raise TensorInvalid(name="context.tensors", reason="it is not a mapping by name")
    for name, value in given.items():
        if name not in interface.inputs:
            raise TensorInvalid(name=name, reason="the model has no such input")
        yield _given(name, interface.inputs[name], value)
    taken = set(given)
    if call.messages and names.messages_input:
        text = json.dumps(chat_messages(call.messages, call.documents), ensure_ascii=False)
        yield _texts(names.messages_input, _port(interface, names.messages_input), (text,))
        taken.add(names.messages_input)
    elif call.messages:
        name = _text_input(interface, names, taken)
        yield _texts(name, interface.inputs[name], (_prompt(call),))
        taken.add(name)
    for name, value in (("max_tokens", call.max_tokens), ("temperature", call.temperature)):
        if value is not None and name in interface.inputs and name not in taken:
            yield _given(name, interface.inputs[name], value)


def _given(name: str, port: Port, value: Any) -> Tensor:
    """Return a value as a tensor; a scalar takes the shape that the model declares."""
    if isinstance(value, list | tuple):
        return encoded(name, port.datatype, value)
    ones = tuple(1 if size < 0 else size for size in port.shape)
    return encoded(name, port.datatype, [value], ones)


def _texts(name: str, port: Port, texts: Sequence[str]) -> Tensor:
    shape = (len(texts), *(1 for _ in port.shape[1:])) if port.shape else ()
    return encoded(name, BYTES, list(texts), shape)


def _batch_size(interface: Interface, port: Port) -> int:
    if interface.max_batch:
        return interface.max_batch
    size = port.shape[0] if port.shape else 1
    return size if size > 0 else 1_000_000


def _prompt(call: CallRequest) -> str:
    """Return a single message as its text, and a conversation with the roles before the texts."""
    messages = chat_messages(call.messages, call.documents)
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _text_input(interface: Interface, names: TritonOptions, taken: Sequence[str] | set[str]) -> str:
    if names.text_input:
        _port(interface, names.text_input)
        return names.text_input
    texts = [
        name
        for name, port in interface.inputs.items()
        if port.datatype == BYTES and name not in taken
    ]
    return _one_of(texts, _TEXT_INPUTS, interface, "single input for text", interface.inputs)


def _text_output(interface: Interface, names: TritonOptions, *, needed: bool) -> str:
    if names.text_output:
        return names.text_output
    meant = {names.finish_reason}
    texts = [
        name
        for name, port in interface.outputs.items()
        if port.datatype == BYTES and name not in meant
    ]
    if not needed and len(texts) != 1:
        return next((name for name in _TEXT_OUTPUTS if name in texts), "")
    return _one_of(texts, _TEXT_OUTPUTS, interface, "single output with text", interface.outputs)


def _embedding_output(interface: Interface, names: TritonOptions) -> str:
    if names.embedding_output:
        return names.embedding_output
    floats = [name for name, port in interface.outputs.items() if port.datatype in FLOATS]
    what = "single output with numbers"
    return _one_of(floats, ("embedding", "embeddings"), interface, what, interface.outputs)


def _one_of(
    found: Sequence[str],
    usual: Sequence[str],
    interface: Interface,
    what: str,
    ports: Mapping[str, Port],
) -> str:
    for name in usual:
        if name in found:
            return name
    if len(found) == 1:
        return found[0]
    raise InterfaceUnsuited(model=interface.model, what=what, known=", ".join(ports) or "none")


def _port(interface: Interface, name: str) -> Port:
    port = interface.inputs.get(name)
    if port is None:
        known = ", ".join(interface.inputs) or "none"
        raise InterfaceUnsuited(model=interface.model, what=f"input `{name}`", known=known)
    return port


def _get(answer: Mapping[str, Tensor], name: str) -> Tensor:
    found = answer.get(name)
    if found is None:
        raise missing(name)
    return found


def _counts(names: TritonOptions) -> tuple[tuple[str, str], ...]:
    """Return the counts of a completion, and the outputs that tell them."""
    return (
        ("input_tokens", names.input_tokens),
        ("output_tokens", names.output_tokens),
        ("cached_tokens", names.cached_tokens),
    )


def _tell(answers: Sequence[Mapping[str, Tensor]], output: str, names: TritonOptions) -> bool:
    """Tell whether answers say anything of a text: the text, how it ended, or how long it is."""
    named = {output, names.finish_reason, *(name for _, name in _counts(names))}
    return any(named & answer.keys() for answer in answers)


def missing(name: str) -> TensorInvalid:
    """Return the error for an output that the answer lacks."""
    return TensorInvalid(name=name, reason="it is missing from the answer")


def _vectors(tensor: Tensor) -> Iterator[tuple[float, ...]]:
    if tensor.datatype == BYTES or not tensor.shape:
        raise TensorInvalid(name=tensor.name, reason="it holds no lists of numbers")
    rows = decoded(tensor)
    if len(tensor.shape) == 1:
        rows = [rows]
    for row in rows:
        vector = row
        while vector and isinstance(vector[0], list):  # [n, 1, d]
            vector = vector[0]
        if not is_vector(vector):
            raise TensorInvalid(name=tensor.name, reason=NO_VECTOR)
        yield tuple(vector)


def _first(tensor: Tensor | None) -> Any:
    """Return the first value of a tensor, or None."""
    value = None if tensor is None else decoded(tensor)
    while isinstance(value, list):
        value = value[0] if value else None
    return value


def _count(answer: Mapping[str, Tensor], name: str) -> int:
    """Return a token count; counts per item of a batch are added up."""
    tensor = answer.get(name)
    if tensor is None:
        return 0
    total = sum(_leaves(decoded(tensor)))
    if not 0 <= total <= MAX_CALL_TOKENS:  # also catches NaN
        raise TensorInvalid(
            name=name, reason=f"a count of tokens is below 0 or above {MAX_CALL_TOKENS}"
        )
    return int(total)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _data(answers: Sequence[Mapping[str, Tensor]]) -> Any:
    """Return the outputs by name; a list of such mappings if the model answered several times."""
    data = [{name: decoded(tensor) for name, tensor in one.items()} for one in answers if one]
    return data[0] if len(data) == 1 else data


def _json(text: str, call: CallRequest) -> Any:
    return None if call.response_schema is None else answer_value(text)
