"""The differences between two versions of a pipeline, place by place. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hocket.schemas.administration.releases import VersionChange
from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline.spec import parse_pipeline


def as_read(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec as this release writes it: Hocket's fields in their order and with their defaults,
    others in the order in which they are. If this release can no longer read it, it stays as it is."""
    return _read(spec) or spec


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[VersionChange]:
    """Yield the places in which two stored specs differ. If this release can no longer read one of them,
    their fields are in different orders, and no order is compared."""
    was, now = _read(before), _read(after)
    yield from changes(was or before, now or after, order=None not in (was, now))


def changes(
    before: Mapping[str, Any], after: Mapping[str, Any], *, order: bool = True
) -> Iterator[VersionChange]:
    """Yield the places in which two specs differ; a null field counts as absent. With `order`, an object
    whose keys are in another order is one: it reaches models, and decides between equal scores."""
    yield from _within("", before, after, order)


def _read(spec: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return parse_pipeline(spec).model_dump(mode="json", by_alias=True)
    except HocketError:
        return None


def _within(
    place: str, before: Mapping[str, Any], after: Mapping[str, Any], order: bool
) -> Iterator[VersionChange]:
    for name in sorted(before.keys() | after.keys()):
        inner = f"{place}.{name}" if place else name
        yield from _at(inner, before.get(name), after.get(name), order)


def _at(place: str, before: Any, after: Any, order: bool) -> Iterator[VersionChange]:
    if json.dumps(before, sort_keys=not order) == json.dumps(after, sort_keys=not order):
        return
    if before is None:
        yield VersionChange(path=place, kind="added", after=after)
    elif after is None:
        yield VersionChange(path=place, kind="removed", before=before)
    elif isinstance(before, dict) and isinstance(after, dict):
        if order:
            yield from _order(place, before, after)
        yield from _within(place, before, after, order)
    else:
        yield VersionChange(path=place, kind="changed", before=before, after=after)


def _order(
    place: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[VersionChange]:
    """Yield the keys of both objects if they are in another order."""
    was, now = [key for key in before if key in after], [key for key in after if key in before]
    if was != now:
        yield VersionChange(path=place, kind="changed", before=was, after=now, order=True)
