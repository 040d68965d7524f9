"""Functions and models of the examples in docs/reference/nodes."""

import json

from pydantic import BaseModel, Field

from hocket.schemas.messages import CallRequest, Completion
from hocket.workers.runtime.execution.context import Context


class Order(BaseModel):
    """What `total` takes; a step whose input does not fit fails with `invalid_input`."""

    item: str
    pieces: int = Field(ge=1)
    price: float = Field(ge=0)


async def total(order: Order, context: Context) -> dict[str, object]:
    """Return what an order comes to."""
    context.log.info("order_priced", item=order.item)
    return {"item": order.item, "total": round(order.pieces * order.price, 2)}


async def clerk(request: CallRequest) -> Completion:
    """A model: say how urgent a letter is."""
    letter = request.messages[-1].content
    data = {"urgency": "high" if "today" in letter else "low"}
    return Completion(text=json.dumps(data), data=data, input_tokens=20, output_tokens=5)


async def planner(_request: CallRequest) -> Completion:
    """A model: one search, and one query of the catalog."""
    plan = {
        "questions": ["Which books are about tides?"],
        "searches": ["tides moon"],
        "queries": [{"name": "books_of_year", "params": {"year": 1904}}],
    }
    return Completion(text=json.dumps(plan), data=plan)
