"""All engines of an emulator, started and stopped together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hocket.emulator.configuration import EmulatorConfig
from hocket.emulator.server import EmulatedEngine
from hocket.kit.web_requests import in_url
from hocket.schemas.errors import ErrorClass, HocketError


class EnginePortTaken(HocketError):
    """The engine cannot listen on {host}:{port}: {reason}. Choose another port."""

    code = "engine_port_taken"
    error_class = ErrorClass.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine and where it listens."""

    engine: EmulatedEngine
    url: str


@asynccontextmanager
async def running(config: EmulatorConfig) -> AsyncIterator[list[RunningEngine]]:
    """Run the engines inside the block; raises EnginePortTaken."""
    engines: list[RunningEngine] = []
    try:
        for group in config.engines:
            for port in group.ports():
                name = str(len(engines))
                engine = EmulatedEngine(
                    group.profile,
                    speed=config.speed,
                    seed=config.seed + len(engines),
                    rates=group.faults,
                    name=name,
                )
                try:
                    url = await engine.start(config.host, port)
                except OSError as error:
                    await engine.stop()
                    raise EnginePortTaken(
                        host=in_url(config.host), port=port, reason=error.strerror
                    ) from error
                engines.append(RunningEngine(engine, url))
        yield engines
    finally:
        for one in engines:
            await one.engine.stop()
