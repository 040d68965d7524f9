"""Converts a run's critical path from its stored form into a readable one. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hocket.schemas.rest import CriticalPath, PathSegment

US_PER_MS = 1_000


def spelled_out(pieces: Sequence[Sequence[Any]] | None) -> CriticalPath | None:
    """Return the critical path made of rows `[step, node, attempt, kind, microseconds, pieces folded]`,
    with the longest kinds first; None if there is none."""
    if not pieces:
        return None
    segments: list[PathSegment] = []
    by_kind: defaultdict[str, int] = defaultdict(int)
    at = 0
    for step, node, attempt, kind, us, folded in pieces:
        segments.append(
            PathSegment(
                step=step,
                node=node,
                attempt=attempt,
                kind=kind,
                from_ms=at / US_PER_MS,
                ms=us / US_PER_MS,
                pieces=folded,
            )
        )
        by_kind[kind] += us
        at += us
    longest = sorted(by_kind.items(), key=lambda item: (-item[1], item[0]))
    return CriticalPath(
        by_kind={kind: us / US_PER_MS for kind, us in longest}, segments=tuple(segments)
    )
