"""Which functions `python` nodes may run here, by the setting `HOCKET_HANDLERS` and the configuration
file together."""

from collections.abc import Mapping
from typing import Any

from hocket.kit.process.settings import Settings
from hocket.schemas.pipeline.handlers import AllowedHandlers, entries_of

SECTION = "node_types.python.modules"


def allowed_handlers(settings: Settings, sections: Mapping[str, Any]) -> AllowedHandlers | None:
    """Return what may run, or None where neither says anything; raise InvalidInput for an entry that
    cannot be allowed."""
    listed = listed_in(sections)
    if settings.handlers is None and listed is None:
        return None
    AllowedHandlers.of(listed or (), SECTION)  # so that a fault names the place it stands in
    return AllowedHandlers.of((*entries_of(settings.handlers or ""), *(listed or ())))


def listed_in(sections: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the list of the file, which the worker's configuration checks in full; None where there is
    none."""
    found: Any = sections
    for name in SECTION.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, list | tuple):
        return None
    return tuple(entry for entry in found if isinstance(entry, str))
