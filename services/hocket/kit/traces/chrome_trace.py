"""A trace as Chrome's trace events, which Perfetto (https://ui.perfetto.dev) shows.

A service is shown as a process. Each of its threads holds spans that follow each other or are nested, so
that spans which overlap otherwise are drawn on separate rows.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

Json = Mapping[str, Any]
_MICROSECOND = timedelta(microseconds=1)


def chrome_trace(trace: Json, *, now: str) -> dict[str, Any]:
    """Return the events of a trace; spans that are still open end at `now`."""
    return {"traceEvents": list(_events(trace, now)), "displayTimeUnit": "ms"}


def _events(trace: Json, now: str) -> Iterator[dict[str, Any]]:
    begun = datetime.fromisoformat(trace["spans"][0]["started_at"])
    services = {name: pid for pid, name in enumerate(("coordinator", "worker", "gateway"), start=1)}
    used: dict[int, list[list[int]]] = {pid: [] for pid in services.values()}
    timed = [(*_times(span, begun, now), span) for span in trace["spans"]]
    for start, end, span in sorted(timed, key=lambda one: (one[0], -one[1])):
        pid = services[span["service"]]
        yield {
            "name": span["attributes"].get("hocket.step", span["name"])
            if span["name"].startswith("step ")
            else span["name"],
            "cat": span["kind"],
            "ph": "X",
            "ts": start,
            "dur": end - start,
            "pid": pid,
            "tid": _thread(used[pid], start, end),
            "args": {**span["attributes"], "span_id": span["span_id"], "status": span["status"]},
        }
    for name, pid in services.items():
        if used[pid]:
            yield {
                "name": "process_name",
                "ph": "M",
                "pid": pid,
                "args": {"name": f"hocket {name}"},
            }
            yield {"name": "process_sort_index", "ph": "M", "pid": pid, "args": {"sort_index": pid}}


def _times(span: Json, begun: datetime, now: str) -> tuple[int, int]:
    start = (datetime.fromisoformat(span["started_at"]) - begun) // _MICROSECOND
    end = (datetime.fromisoformat(span["ended_at"] or now) - begun) // _MICROSECOND
    return start, max(start, end)


def _thread(threads: list[list[int]], start: int, end: int) -> int:
    """Return the number of the first thread on which a span is nested in the open spans, or follows them
    all, and add it there. Each thread is the stack of its open spans' ends."""
    for number, ends in enumerate(threads, start=1):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or ends[-1] >= end:
            ends.append(end)
            return number
    threads.append([end])
    return len(threads)
