"""Trace contexts as defined by https://www.w3.org/TR/trace-context/. Pure."""

import re
from dataclasses import dataclass
from typing import Final

SAMPLED: Final = 1
"""The flag that says that the caller keeps its trace."""
_VERSION_0: Final = "00"
_FORM = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]{0,128})?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The context of a span: its trace, its own id, and the flags of the process that began the
    trace."""

    trace_id: str
    span_id: str
    flags: int = 0

    @property
    def is_sampled(self) -> bool:
        """Whether its caller keeps the trace."""
        return bool(self.flags & SAMPLED)

    @property
    def header(self) -> str:
        """The context as `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def read_context(traceparent: str | None) -> TraceContext | None:
    """Return the context of a `traceparent`; None if it is malformed, or one of its ids is all zeros."""
    found = _FORM.fullmatch(traceparent) if traceparent else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    known = version != "ff" and (version != _VERSION_0 or more is None)
    if not known or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceContext(trace_id, span_id, int(flags, 16))
