"""Functions for the tutorial docs/tutorials/first-pipeline.md."""

from typing import Any

from pydantic import BaseModel, Field

from hocket.worker import Context, Retryable

PRICES = {"rope": 2.5, "lamp": 40.0, "anchor": 180.0}


class Line(BaseModel):
    """One line of an order."""

    item: str
    pieces: int = Field(ge=1)


async def price(line: Line, context: Context) -> dict[str, Any]:
    """Return the total of a line. The price list is busy at the first attempt."""
    if context.step.attempt == 1:
        raise Retryable("the price list is busy")
    return {"item": line.item, "total": PRICES[line.item] * line.pieces}


async def receipt(given: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of all lines."""
    return {"lines": len(given["lines"]), "total": sum(one["total"] for one in given["lines"])}
