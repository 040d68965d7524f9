"""The differences between two versions of a pipeline, place by place. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from hocket.schemas.administration.releases import VersionChange
from hocket.schemas.checks.plain_json import same_json


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[VersionChange]:
    """Yield the places in which two specs differ; a null field counts as absent."""
    yield from _within("", before, after)


def _within(
    place: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[VersionChange]:
    for name in sorted(before.keys() | after.keys()):
        inner = f"{place}.{name}" if place else name
        yield from _at(inner, before.get(name), after.get(name))


def _at(place: str, before: Any, after: Any) -> Iterator[VersionChange]:
    if same_json(before, after):
        return
    if before is None:
        yield VersionChange(path=place, kind="added", after=after)
    elif after is None:
        yield VersionChange(path=place, kind="removed", before=before)
    elif isinstance(before, dict) and isinstance(after, dict):
        yield from _within(place, before, after)
    else:
        yield VersionChange(path=place, kind="changed", before=before, after=after)
