"""Functions and models for the examples in docs/reference/nodes."""

import json

from pydantic import BaseModel, Field

from hocket.schemas.messages import CallRequest, Completion
from hocket.worker import Context


class Order(BaseModel):
    """The input of `total`; a step whose input does not match fails with `invalid_input`."""

    item: str
    pieces: int = Field(ge=1)
    price: float = Field(ge=0)


async def total(order: Order, context: Context) -> dict[str, object]:
    """Return the total of an order."""
    context.log.info("order_priced", item=order.item)
    return {"item": order.item, "total": round(order.pieces * order.price, 2)}


async def clerk(request: CallRequest) -> Completion:
    """A model: say how urgent a letter is."""
    letter = request.messages[-1].content
    data = {"urgency": "high" if "today" in letter else "low"}
    return Completion(text=json.dumps(data), data=data, input_tokens=20, output_tokens=5)


async def librarian(request: CallRequest) -> Completion:
    """A model: look up books, calculate the price of two copies of the first, and report it."""
    task, *since = [message.content for message in request.messages if message.role in ASKED]
    if not since:
        subject = task.rstrip("?").split()[-1]
        return _calls("find_books", {"subject": subject, "at_most": 1})
    if len(since) == 1:
        return _calls("total", {"item": since[0], "pieces": 2, "price": 12.5})
    order = json.loads(since[1])
    text = f"Two copies of {order['item']} come to {order['total']}."
    return Completion(text=text, input_tokens=60, output_tokens=15)


ASKED = ("user", "tool")


def _calls(tool: str, arguments: dict[str, object]) -> Completion:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": "call", "type": "function", "function": function}
    return Completion(tool_calls=(call,), input_tokens=40, output_tokens=10)


async def planner(_request: CallRequest) -> Completion:
    """A model: plan one search, and one query of the catalog."""
    plan = {
        "questions": ["Which books are about tides?"],
        "searches": ["tides moon"],
        "queries": [{"name": "books_of_year", "params": {"year": 1904}}],
    }
    return Completion(text=json.dumps(plan), data=plan)
