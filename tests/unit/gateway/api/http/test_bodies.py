"""What a body must be to be a call."""

from support.gateway.door_rig import MODELS, asks, running, status
from support.gateway.routing_rig import Rig, says


async def test_a_models_name_is_printable() -> None:
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(door.request(asks(model="a\nb")))
        assert await status(reader) == 400
        writer.close()
