"""The configuration file: one YAML mapping, whose sections belong to the processes that read them."""

from pathlib import Path
from typing import Any

import yaml

from hocket.schemas.errors import InvalidInput

MAX_CONFIG_BYTES = 4_000_000


def load(path: Path | None) -> dict[str, Any]:
    """Return the sections of a configuration file ({} without one), or raise InvalidInput."""
    if path is None:
        return {}
    try:
        text = path.read_bytes()
    except OSError as error:
        raise _invalid(path, str(error.strerror), "Check HOCKET_CONFIG.") from error
    if len(text) > MAX_CONFIG_BYTES:
        raise _invalid(path, f"it is larger than {MAX_CONFIG_BYTES} bytes", "Make it smaller.")
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _invalid(path, f"it is not YAML: {error}", "Mend the syntax.") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _invalid(path, "it is not a mapping", "Start with a section, e.g. `models:`.")
    return document


def _invalid(path: Path, reason: str, cure: str) -> InvalidInput:
    return InvalidInput(field=f"config {path}", reason=reason, cure=cure)
