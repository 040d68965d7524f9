"""What the System page tells of the streams, with the rights that the service has at NATS."""

from nats.js.api import ConsumerConfig

from hocket.admin.console.views.system_state import streams
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.step_consumers import make_consumers
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects


async def test_the_service_may_read_how_much_waits_in_each_stream(
    servers: EmbeddedServers, nats_url: str
) -> None:
    owner = await Bus.connect(nats_url, name="test")
    admin = await Bus.connect(servers.nats.url_of("admin"), name="admin")
    try:
        await ensure_streams(owner)
        await make_consumers(owner, "python", 30.0)
        await owner.js.add_consumer(subjects.TASKS, ConsumerConfig(durable_name="reader"))
        await owner.js.publish("hocket.step.python.normal", b"{}")
        found = await streams(admin)
        assert found is not None
        by_name = {one.name: one for one in found}
        assert by_name[subjects.STEPS].waiting == 1
        assert by_name[subjects.STEPS].taken == 0
        assert by_name[subjects.TASKS].waiting == 0
        assert by_name[subjects.USAGE].waiting is None
    finally:
        await admin.close()
        await owner.close()
