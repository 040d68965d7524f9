"""The parts of one engine that its routes use."""

from dataclasses import dataclass

from hocket.emulator.core.faults import Faults
from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.journal import Journal
from hocket.emulator.serving import Serving


@dataclass(frozen=True, slots=True)
class EngineParts:
    """One engine: its profile, its jobs, its faults, and the journal of its requests."""

    profile: EngineProfile
    serving: Serving
    faults: Faults
    journal: Journal
