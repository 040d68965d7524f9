"""What the routes of one engine work with."""

from dataclasses import dataclass

from hocket.emulator.core.faults import Faults
from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.journal import Journal
from hocket.emulator.serving import Serving


@dataclass(frozen=True, slots=True)
class EngineParts:
    """One engine: what it is like, its jobs, its faults, and what became of its requests."""

    profile: EngineProfile
    serving: Serving
    faults: Faults
    journal: Journal
