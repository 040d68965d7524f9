"""Share the resolved routes of REST among all apps of a test process.

FastAPI resolves a route when the first request arrives that might match it, separately for each app,
which takes a second for all routes. The apps of tests differ only in their state, which a request
carries.
"""

from typing import Any

from fastapi import routing

_worked_out: dict[tuple[int, str], tuple[routing.APIRoute, Any]] = {}
"""By the id of a route, which is kept alive here, and its path in the app."""
_work_out = routing._EffectiveRouteContext.from_api_route


def share_routes() -> None:
    """Make apps that are created from now on share their routes."""
    routing._EffectiveRouteContext.from_api_route = _shared  # type: ignore[method-assign]


def _shared(*, original_route: routing.APIRoute, include_context: Any) -> Any:
    key = id(original_route), include_context.path_for(original_route)
    if key not in _worked_out:
        made = _work_out(original_route=original_route, include_context=include_context)
        _worked_out[key] = original_route, made
    return _worked_out[key][1]
