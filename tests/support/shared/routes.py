"""The routes of REST, worked out once for all the apps of a test process.

FastAPI works a route out when the first request comes that it may be for: for each app anew, a second
for all of them. Apps of tests differ in their state alone, which a request carries.
"""

from typing import Any

from fastapi import routing

_worked_out: dict[tuple[int, str], tuple[routing.APIRoute, Any]] = {}
"""By a route, which stays alive here, and its path in the app."""
_work_out = routing._EffectiveRouteContext.from_api_route


def share_routes() -> None:
    """Have the apps that are made from now on share their routes."""
    routing._EffectiveRouteContext.from_api_route = _shared  # type: ignore[method-assign]


def _shared(*, original_route: routing.APIRoute, include_context: Any) -> Any:
    key = id(original_route), include_context.path_for(original_route)
    if key not in _worked_out:
        made = _work_out(original_route=original_route, include_context=include_context)
        _worked_out[key] = original_route, made
    return _worked_out[key][1]
