"""The configuration file: one YAML mapping, whose sections belong to the processes that read them.

Its values are those of JSON (docs/reference/values.md): other YAML values (NaN, sets, bytes) are refused
with their place, and dates are read as text.
"""

from pathlib import Path
from typing import Any

import yaml

from hocket.schemas.checks.plain_json import check_plain
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.document import UniqueKeyLoader, load_yaml

MAX_CONFIG_BYTES = 4_000_000
MAX_CONFIG_VALUES = 1_000_000
"""Values in the file; those that aliases repeat are counted each time."""


def load(path: Path | None, *, named_by: str = "HOCKET_CONFIG") -> dict[str, Any]:
    """Return the sections of a configuration file ({} without one), or raise InvalidInput. `named_by`:
    the setting or option with its path."""
    if path is None:
        return {}
    try:
        path = path.expanduser()
        if path.is_fifo():
            raise _invalid(path, "it is a named pipe", "Name a file.")
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
    except RuntimeError as error:
        raise _invalid(path, "there is no such home folder", f"Check {named_by}.") from error
    except OSError as error:
        raise _invalid(path, str(error.strerror), f"Check {named_by}.") from error
    if len(text) > MAX_CONFIG_BYTES:
        raise _invalid(path, f"it is larger than {MAX_CONFIG_BYTES} bytes", "Make it smaller.")
    try:
        document = load_yaml(text, _Loader, MAX_CONFIG_VALUES)
    except ValueError as error:
        raise _invalid(path, f"it is not YAML: {error}", "Fix the syntax.") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _invalid(path, "it is not a mapping", "Start with a section, e.g. `models:`.")
    for section, value in document.items():
        if not isinstance(section, str):
            raise _invalid(path, f"the section {section!r} is not text", "Put it in quotes.")
        check_plain(value, section)
    return document


class _Loader(UniqueKeyLoader):
    """A loader that reads dates as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _invalid(path: Path, reason: str, cure: str) -> InvalidInput:
    return InvalidInput(field=f"config {path}", reason=reason, cure=cure)
