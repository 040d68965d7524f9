"""A NATS service with one endpoint, using nats-py: `python examples/nodes/price_service.py`."""

import asyncio
import json

import nats
from nats.micro import ServiceConfig, add_service
from nats.micro.request import Request

SERVER = "nats://127.0.0.1:4333"
PRICES = {"lamp": 12.5, "chair": 80.0}


async def quote(request: Request) -> None:
    """Reply with the price of a number of items."""
    asked = json.loads(request.data)
    price = PRICES.get(asked["item"])
    if price is None:
        await request.respond_error(code="404", description=f"There is no {asked['item']}.")
    else:
        await request.respond(json.dumps({"total": price * asked["count"]}).encode())


async def serve(server: str = SERVER) -> None:
    """Serve until the process is stopped."""
    connection = await nats.connect(server)
    service = await add_service(connection, ServiceConfig(name="prices", version="1.0.0"))
    await service.add_group(name="prices").add_endpoint(name="quote", handler=quote)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
