"""Converts a chat completion's chunks to the numbered events of a response, in the order clients
expect.

An item is added, grows, and is done. Reasoning is done when text begins, and text when a function
call begins; function calls may grow in parallel, so all of them are done at the end.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hocket.gateway.core.protocols.openai_api import begins_another, content_text
from hocket.gateway.core.protocols.responses import answer
from hocket.gateway.core.protocols.responses.answer import ResponseHead
from hocket.gateway.core.protocols.responses.thinking import unsealed
from hocket.schemas.messages import CallReply

MAX_ITEMS = 256
"""Beyond this many items, a response gets no new text or reasoning items;
existing ones keep growing."""
_RATE_LIMITED, _BROKEN = "rate_limit_exceeded", "server_error"
Event = dict[str, Any]
Ending = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class _Growing:
    """An added item: its position and what it holds so far."""

    kind: str
    place: int
    item_id: str
    number: int = 0
    call_id: str = ""
    name: str = ""
    texts: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    added: dict[str, Any] = field(default_factory=dict)
    status: str = "in_progress"

    def as_item(self, head: ResponseHead) -> dict[str, Any]:
        """Return the item in its current state."""
        status = self.status
        text = "".join(self.texts)
        if self.kind == "function_call":
            call = (self.number, self.call_id, self.name, text, status)
            made = answer.call_item(head, *call)
        elif self.kind == "reasoning":
            made = answer.reasoning_item(head, text, self.blocks, status)
        elif self.kind == "refusal":
            made = answer.message_item(head, None, text, status)
        else:
            made = answer.message_item(head, text if self.texts else None, status=status)
        return made | {"id": self.item_id} | self.added

    def endings(self, head: ResponseHead) -> Iterator[Ending]:
        """Yield the names and fields of the events that report its final content."""
        item = self.as_item(head)
        if self.kind == "function_call":
            fields = {"name": self.name, "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", fields
        for part in item.get("content") or ():
            shown: dict[str, Any] = {"content_index": 0}
            if self.kind == "reasoning":
                yield "response.reasoning_text.done", {**shown, "text": part["text"]}
            elif self.kind == "refusal":
                yield "response.refusal.done", {**shown, "refusal": part["refusal"]}
            else:
                said = {**shown, "text": part["text"], "logprobs": []}
                yield "response.output_text.done", said
            if self.kind != "reasoning":
                yield "response.content_part.done", {**shown, "part": part}


class ResponseStream:
    """The events of one response: call `piece` for each piece of the answer, then `end` or `failed`."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._items: list[_Growing] = []
        self._open: dict[str, _Growing] = {}
        self._calls: dict[int, _Growing] = {}
        """The latest call at each index."""
        self._called = 0
        self._metered: Any = None
        """The latest usage; a stream's reply has only its counts."""
        self._reason: Any = None
        """Why the backend ended the answer, as far as its chunks say."""
        self._number = 0
        self._begun = False

    def piece(self, text: str, chunk: Mapping[str, Any] | None) -> Iterator[Event]:
        """Yield the events for a piece: a chunk of a chat completion, or its text alone."""
        yield from self._opening()
        if chunk is None:
            yield from self._text("message", text)
            return
        self._metered = chunk.get("usage") or self._metered
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(choice, dict) and not choice.get("index"):
                self._reason = choice.get("finish_reason") or self._reason
                if isinstance(delta, dict):
                    yield from self._delta(delta)

    def end(self, reply: CallReply) -> Iterator[Event]:
        """Yield the last events; anything missing from the pieces is taken from the reply."""
        yield from self._opening()
        if not self._items:
            yield from self._from(reply)
        if not self._calls:
            for index, call in enumerate(reply.tool_calls):
                yield from self._call(index, call)
        reason = self._reason or answer.reason_of(reply)
        is_cut = answer.incomplete_of(reason) is not None
        for item in self._items:
            is_last = item.place == len(self._items) - 1
            yield from self._done(item, "incomplete" if is_cut and is_last else "completed")
        made = answer.ended(self._head, self._output(), reply, reason, self._metered)
        yield self._event(f"response.{made['status']}", response=made)

    def failed(self, told: Mapping[str, Any]) -> Iterator[Event]:
        """Yield the events of a response that failed after it began, given an error in OpenAI's
        format.

        They are an error event with Hocket's own code, and the failed response with a code of the
        API.
        """
        code, message = told["code"], told["message"]
        yield self._event("error", code=code, message=message, param=told["param"])
        for item in self._items:
            if item.status == "in_progress":
                item.status = "incomplete"
        limited = told["type"] == "rate_limit_error"
        error = {"code": _RATE_LIMITED if limited else _BROKEN, "message": message}
        made = answer.response(self._head, "failed", self._output(), error=error)
        yield self._event("response.failed", response=made)

    def _opening(self) -> Iterator[Event]:
        if not self._begun:
            self._begun = True
            begun = answer.response(self._head, "in_progress")
            yield self._event("response.created", response=begun)
            yield self._event("response.in_progress", response=begun)

    def _from(self, reply: CallReply) -> Iterator[Event]:
        """Yield the events for reasoning and text that arrive in one piece."""
        for item in answer.items(self._head, reply):
            if item["type"] == "reasoning":
                text = "".join(part["text"] for part in item["content"])
                blocks = unsealed(item.get("encrypted_content"))
                name = answer.REASONING_FIELD
                added = {name: item[name]} if name in item else {}
                yield from self._thinking(answer.Thought(text, blocks, added))
            elif item["type"] == "message":
                (part,) = item["content"]
                if part["type"] == "refusal":
                    yield from self._text("refusal", part["refusal"])
                else:
                    yield from self._text("message", part["text"], may_be_empty=True)

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[Event]:
        thought = answer.said_of_thinking(delta)
        if thought.text or thought.blocks:
            yield from self._thinking(thought)
        yield from self._text("message", content_text(delta.get("content")))
        if isinstance(delta.get("refusal"), str):
            yield from self._text("refusal", delta["refusal"])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                yield from self._call(answer.index_of(call), call)

    # ---- items --------------------------------------------------------------------------------

    def _thinking(self, thought: answer.Thought) -> Iterator[Event]:
        item = self._open.get("reasoning")
        if item is None:
            item = _Growing("reasoning", 0, f"rs_{self._head.tail}", added=thought.added)
            yield from self._new(item)
        item.blocks += thought.blocks
        item.added |= thought.added
        if text := thought.text:
            item.texts.append(text)
            yield self._of(item, "response.reasoning_text.delta", content_index=0, delta=text)

    def _text(self, kind: str, text: str, *, may_be_empty: bool = False) -> Iterator[Event]:
        """Yield the events for a piece of text;
        an empty piece starts an item only if `may_be_empty`."""
        if not text and not may_be_empty:
            return
        item = self._open.get(kind)
        if item is None:
            item = yield from self._new(_Growing(kind, 0, f"msg_{self._head.tail}"))
            part = answer.part("", "" if kind == "refusal" else None)
            yield self._of(item, "response.content_part.added", content_index=0, part=part)
        item.texts.append(text)
        if kind == "refusal":
            yield self._of(item, "response.refusal.delta", content_index=0, delta=text)
        elif text:
            name = "response.output_text.delta"
            yield self._of(item, name, content_index=0, delta=text, logprobs=[])

    def _call(self, index: int, call: Mapping[str, Any]) -> Iterator[Event]:
        call_id, name, arguments = answer.called(call)
        item, added = self._calls.get(index), answer.added_to(call)
        if item is None or begins_another(item.call_id, call_id, name):
            item = _Growing(
                "function_call", 0, f"fc_{self._head.tail}", self._called, call_id, name
            )
            item.added = added
            self._called += 1
            self._calls[index] = yield from self._new(item)
        item.added |= added
        item.call_id, item.name = item.call_id or call_id, item.name or name
        if arguments:
            item.texts.append(arguments)
            yield self._of(item, "response.function_call_arguments.delta", delta=arguments)

    def _new(self, item: _Growing) -> Generator[Event, None, _Growing]:
        """Yield the events that finish earlier items and the event that adds an item;
        return the item."""
        if len(self._items) < MAX_ITEMS or item.kind == "function_call":
            for other in self._open.values():
                yield from self._done(other)
            self._open.clear()
        item.place = len(self._items)
        item.item_id = f"{item.item_id}_{item.place}"
        self._items.append(item)
        if item.kind != "function_call":
            self._open[item.kind] = item
        added = item.as_item(self._head)
        yield self._event("response.output_item.added", output_index=item.place, item=added)
        return item

    def _done(self, item: _Growing, status: str = "completed") -> Iterator[Event]:
        if item.status == "in_progress":
            item.status = status
            for kind, fields in item.endings(self._head):
                yield self._of(item, kind, **fields)
            made = item.as_item(self._head)
            yield self._event("response.output_item.done", output_index=item.place, item=made)

    def _output(self) -> list[dict[str, Any]]:
        return [item.as_item(self._head) for item in self._items]

    # ---- events -------------------------------------------------------------------------------

    def _of(self, item: _Growing, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=item.item_id, output_index=item.place, **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}
