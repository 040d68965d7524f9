"""A stream that lost its end, as after a loss of power: what the simulator takes for granted of the real
server (`Stream.lose_from`)."""

import shutil
from pathlib import Path

from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig

from hocket.kit.embedded.nats import NatsServer
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects

STEP = "hocket.step.python.normal"
CONSUMER = "c"
WAIT_S = 20.0


async def fetched(bus: Bus, count: int) -> list[tuple[int, bytes]]:
    """Take so many steps and acknowledge them, but for the last."""
    js: JetStreamContext = bus.js
    pull = await js.pull_subscribe_bind(CONSUMER, subjects.STEPS)
    found = []
    while len(found) < count:
        for message in await pull.fetch(count - len(found), timeout=WAIT_S):
            found.append((message.metadata.sequence.stream, message.data))
            if len(found) < count:
                await message.ack_sync()
    await pull.unsubscribe()
    return found


async def test_what_takes_lost_places_is_stored_and_delivered(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    await server.start()
    try:
        bus = await Bus.connect(server.url, name="test")
        await ensure_streams(bus)
        consumer = ConsumerConfig(name=CONSUMER, durable_name=CONSUMER, filter_subject=STEP)
        await bus.js.add_consumer(subjects.STEPS, consumer)
        for number in range(2):
            await bus.publish(STEP, b"kept %d" % number, msg_id=f"kept-{number}")
        await bus.close()
        await server.stop()
        (messages,) = server.store_dir.glob(f"**/streams/{subjects.STEPS}/msgs")
        shutil.copytree(messages, tmp_path / "before")
        await server.start()

        bus = await Bus.connect(server.url, name="test")
        for number in range(3):
            await bus.publish(STEP, b"lost %d" % number, msg_id=f"lost-{number}")
        in_order = [(seq, b"kept %d" % (seq - 1)) for seq in (1, 2)]
        in_order += [(seq, b"lost %d" % (seq - 3)) for seq in (3, 4, 5)]
        assert await fetched(bus, 5) == in_order, "the last is in hand, four are acknowledged"
        await bus.close()
        await server.stop()
        shutil.rmtree(messages)
        shutil.copytree(tmp_path / "before", messages)
        await server.start()

        bus = await Bus.connect(server.url, name="test")
        places = [
            await bus.publish(STEP, b"again %d" % number, msg_id=f"lost-{number}")
            for number in range(3)
        ]
        assert [(place.seq, place.duplicate) for place in places] == [
            (seq, False) for seq in (3, 4, 5)
        ], "their ids are forgotten with them"
        found = await fetched(bus, 3)
        assert found == [(seq, b"again %d" % (seq - 3)) for seq in (3, 4, 5)]
        await bus.close()
    finally:
        await server.stop()
