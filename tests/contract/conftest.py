"""Play one coroutine twice: against the real servers, and inside a simulated world."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from simulation.engine.nats_server import Server
from simulation.engine.nats_transport import SimulatedTransport
from simulation.engine.scenes import play_scene
from simulation.engine.world import Process, World
from simulation.platform.platform import URL

LIMIT_S = 60.0
Scene = Callable[[str], Awaitable[None]]


@pytest.fixture(params=["real", "simulated"])
def play(request: pytest.FixtureRequest) -> Callable[[Scene], None]:
    """Run a scene, which gets the URL of a NATS server, against the real or the simulated server."""
    if request.param == "simulated":
        return _play_simulated
    url: str = request.getfixturevalue("nats_url")
    return lambda scene: asyncio.run(_within(scene, url))


async def _within(scene: Scene, url: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        await scene(url)


def _play_simulated(scene: Scene) -> None:
    world = World("contract")

    class Transport(SimulatedTransport):
        server = Server(world)

    async def main(_process: Process) -> None:
        await scene(URL)

    play_scene(world, Transport, main, LIMIT_S)
