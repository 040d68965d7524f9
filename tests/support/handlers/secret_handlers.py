"""Functions that look for secrets wherever a function can look without tricks."""

import json
import os
from pathlib import Path
from typing import Any

from hocket.schemas.messages import CallRequest, Completion


def look(given: Any) -> dict[str, str]:
    """Return the environment of this process as it is, and the initial ones of this process and its
    siblings."""
    found = {"environ": repr(dict(os.environ))}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "stat").read_text().rpartition(")")[2].split()[1] != str(os.getppid()):
                continue
            found[process.name] = (process / "environ").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
    return found


async def tell(given: dict[str, str]) -> None:
    """Fail with a URL that contains a password."""
    raise ConnectionError(f"cannot reach {given['url']} (tried twice)")


def log(given: dict[str, str]) -> None:
    """Log a URL that contains a password."""
    import logging

    import structlog

    structlog.get_logger().error("connecting", url=given["url"])
    logging.getLogger("library").error("connecting to %s", given["url"])


async def echo(given: Any) -> Any:
    """Return the input."""
    return given


async def plan(request: CallRequest) -> Completion:
    """A model that emits what its question says, like one that was talked into it."""
    emitted = json.loads(request.context["question"])
    return Completion(text=json.dumps(emitted), data=emitted)
