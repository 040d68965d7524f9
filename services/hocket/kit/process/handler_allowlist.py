"""The functions that `python` nodes may run, and the queues of the packages that contain them.

The setting `HOCKET_HANDLERS` and the configuration file together define the functions.
"""

from collections.abc import Mapping
from typing import Any

from hocket.kit.process.settings import Settings
from hocket.schemas.pipeline.handlers import AllowedHandlers, HandlerQueues, entries_of

SECTION = "node_types.python.modules"
QUEUES = "node_types.python.queues"


def allowed_handlers(settings: Settings, sections: Mapping[str, Any]) -> AllowedHandlers | None:
    """Return what may run, or None if neither the setting nor the file says so; raise InvalidInput for
    an entry that cannot be allowed."""
    listed = listed_in(sections)
    if settings.handlers is None and listed is None:
        return None
    AllowedHandlers.of(listed or (), SECTION)  # so that an error names the place of the entry
    return AllowedHandlers.of((*entries_of(settings.handlers or ""), *(listed or ())))


def listed_in(sections: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the list in the file, None if there is none. The worker's configuration checks it in
    full."""
    found = _found(sections, SECTION)
    if not isinstance(found, list | tuple):
        return None
    return tuple(entry for entry in found if isinstance(entry, str))


def handler_queues(sections: Mapping[str, Any]) -> HandlerQueues:
    """Return the queues of packages that the file names; raise InvalidInput for an invalid one."""
    found = _found(sections, QUEUES)
    named = found.items() if isinstance(found, Mapping) else ()
    return HandlerQueues({str(module): str(queue) for module, queue in named}, QUEUES)


def _found(sections: Mapping[str, Any], place: str) -> Any:
    found: Any = sections
    for name in place.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
