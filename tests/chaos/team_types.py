"""Node types of a team, served by its own processes (`hocket-worker chaos.team_types:worker`)."""

from typing import Any

from chaos import chaos_handlers
from hocket.worker import Context, Worker

worker = Worker(queues=("default", "blue"))


@worker.node("chaos.note", concurrency=8)
async def note(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the input after a moment."""
    return dict(await chaos_handlers.note(given, context))


@worker.node("chaos.durable", concurrency=8)
async def durable(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Do something in units, each once for the step."""
    return dict(await chaos_handlers.durable(given, context))


@worker.node("chaos.pay", concurrency=8)
async def pay(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Do one unit and ask a model."""
    return dict(await chaos_handlers.pay(given, context))


@worker.node("chaos.calling", concurrency=8)
async def calling(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """Do two units, and call nodes between them."""
    return dict(await chaos_handlers.calling(given, context))
