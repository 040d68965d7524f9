"""Run one coroutine in a new world, for contracts that the real components must fulfil as well."""

from collections.abc import Awaitable, Callable
from typing import Any

from simulation.engine.world import Process, World, replaced


def play_scene(
    world: World,
    transport: Callable[[], Any],
    scene: Callable[[Process], Awaitable[None]],
    limit_s: float,
) -> None:
    """Run a coroutine to its end as a process of a world, within `limit_s` of the world's time; raise
    what it raised."""
    ends: list[BaseException | None] = []

    def ended(error: BaseException | None) -> None:
        ends.append(error)
        world.stop()

    async def main() -> None:
        await scene(process)

    with replaced(world, transport):
        process = world.process("scene")
        process.on_exit = ended
        process.start(main())
        world.run(limit_s)
    assert ends, f"the scene has not ended after {limit_s} s"
    error: Any = ends[0]
    if error is not None:
        raise error
