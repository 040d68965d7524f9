"""The engines that one emulator runs, read from a YAML file."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hocket.emulator.core.faults import FaultRates
from hocket.emulator.core.profile import EngineProfile
from hocket.schemas.checks.faults import faults_of, refusal
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.faults import misuse

MAX_ENGINES = 256
MAX_SPEED = 100_000.0
DEFAULT_PORT = 8_000
MAX_PORT = 65_535


class EngineGroup(BaseModel):
    """Equal engines: the first listens on `port`, each next one on the port after it.

    Port 0 is a free port for each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: EngineProfile = EngineProfile()
    port: int = Field(DEFAULT_PORT, ge=0, le=MAX_PORT)
    replicas: int = Field(1, ge=1, le=MAX_ENGINES)
    faults: FaultRates = FaultRates()

    @model_validator(mode="after")
    def _has_ports(self) -> Self:
        if self.port + self.replicas - 1 > MAX_PORT:
            raise misuse(
                f"{self.replicas} engines from port {self.port} on need ports beyond {MAX_PORT}",
                f"Use a port of at most {MAX_PORT + 1 - self.replicas}, or fewer replicas.",
            )
        return self

    def ports(self) -> list[int]:
        """Return the port of each engine."""
        return [self.port + index if self.port else 0 for index in range(self.replicas)]


class EmulatorConfig(BaseModel):
    """All engines of an emulator, and the time that they live in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    speed: float = Field(1.0, gt=0, le=MAX_SPEED)
    """Virtual seconds in a real one."""
    seed: int = 0
    engines: tuple[EngineGroup, ...] = Field(min_length=1, max_length=MAX_ENGINES)


def _field_of(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place)) or "emulator"


def parse(document: Mapping[str, Any], *, named: Callable[[str], str] = str) -> EmulatorConfig:
    """Return the configuration in a document, or raise InvalidInput with the field and the cure. `named`
    returns the name of a field for people."""
    try:
        return EmulatorConfig.model_validate(document)
    except ValidationError as error:
        found = faults_of(error, field_of=_field_of)
        told = [fault._replace(field=named(fault.field)) for fault in found]
        raise refusal(InvalidInput, told) from None
