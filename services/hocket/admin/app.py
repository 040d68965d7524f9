"""The API as an ASGI application: its routers, its errors, its limits."""

from functools import partial
from importlib.metadata import version

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from hocket.admin.approvals.endpoints import router as approvals
from hocket.admin.audit.endpoints import router as audit
from hocket.admin.backends.endpoints import rates_router as model_rates
from hocket.admin.backends.endpoints import router as backends
from hocket.admin.bulk.endpoints import router as bulk
from hocket.admin.calls.endpoints import router as calls
from hocket.admin.console.rendering import ASSETS
from hocket.admin.console.routes import ROUTERS as CONSOLE
from hocket.admin.console.sessions import Sessions
from hocket.admin.content.endpoints import router as content
from hocket.admin.context import Context
from hocket.admin.costs.endpoints import router as costs
from hocket.admin.data.endpoints import router as data
from hocket.admin.dead_letters.endpoints import router as dead_letters
from hocket.admin.docs_page import DOCUMENT, PAGE, add_docs_page
from hocket.admin.experiments.endpoints import router as experiments
from hocket.admin.flow.endpoints import router as flow
from hocket.admin.grants.endpoints import router as grants
from hocket.admin.health.database_check import DatabaseCheck
from hocket.admin.health.endpoints import router as health
from hocket.admin.keys.endpoints import router as keys
from hocket.admin.live.endpoints import router as live
from hocket.admin.logs.endpoints import router as logs
from hocket.admin.metrics import RequestMetrics
from hocket.admin.node_types.endpoints import router as node_types
from hocket.admin.openapi import document
from hocket.admin.pipelines.endpoints import router as pipelines
from hocket.admin.pipelines.release_endpoints import router as releases
from hocket.admin.platform_parts.endpoints import router as platform_parts
from hocket.admin.requests.access_control import AccessControl
from hocket.admin.requests.body_limit import BodyLimit
from hocket.admin.requests.errors import add_error_handlers
from hocket.admin.requests.in_turn import InTurn
from hocket.admin.requests.request_limit import RequestLimit
from hocket.admin.requests.request_rules import RequestRules, operations_of
from hocket.admin.requests.sub_path import SubPath
from hocket.admin.runs.comparison_endpoint import router as comparison
from hocket.admin.runs.endpoints import router as runs
from hocket.admin.runs.exports import router as exports
from hocket.admin.schedules.endpoints import router as schedules
from hocket.admin.sign_in_facts import add_sign_in_facts
from hocket.admin.submission.quick_answers import quick_routes
from hocket.admin.traces.endpoints import router as traces
from hocket.admin.webhooks.endpoints import router as webhooks
from hocket.kit.access.key_book import KeyBook
from hocket.kit.identity.authorization_code import AuthorizationCode
from hocket.kit.identity.bearers import TokenBearers
from hocket.kit.identity.configured import CliClient
from hocket.kit.process.settings import DEFAULT_KEY_REQUESTS_PER_S
from hocket.kit.web_requests import WebRules

MAX_BODY_BYTES = 1_048_576
"""The maximum size of a request in bytes."""

FROM_MEMORY = (ASSETS, f"{PAGE}/", DOCUMENT)
"""Where paths begin at which the same is sent to everybody, from memory."""

DEFAULT_WEB_RULES = WebRules()
"""Loopback names and addresses only."""
ROUTERS = (
    live,
    bulk,
    schedules,
    webhooks,
    approvals,
    flow,
    comparison,
    exports,
    runs,
    logs,
    traces,
    pipelines,
    releases,
    node_types,
    costs,
    calls,
    content,
    experiments,
    backends,
    model_rates,
    dead_letters,
    health,
    platform_parts,
    keys,
    grants,
    audit,
    data,
    *CONSOLE,
)


def make_app(
    context: Context,
    registry: CollectorRegistry,
    book: KeyBook,
    web: WebRules = DEFAULT_WEB_RULES,
    *,
    key_requests_per_s: float = DEFAULT_KEY_REQUESTS_PER_S,
    root_path: str = "",
    tokens: TokenBearers | None = None,
    sign_in: AuthorizationCode | None = None,
    cli_client: CliClient | None = None,
    public_url: str | None = None,
) -> FastAPI:
    """Return the application over these connections; its metrics go to `registry`. `book` holds the
    keys; `tokens` verifies the tokens of an identity provider, at which people `sign_in` to the console
    and the command line is registered as `cli_client`. `web` says under which host names requests are
    accepted, `root_path` below which path, `public_url` where browsers reach it. Raises
    OperationUndeclared."""
    app = FastAPI(
        title="Hocket",
        version=version("hocket"),
        summary="Submit and read runs, apply pipelines, read costs.",
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.context = context
    app.state.database_check = DatabaseCheck(context.reserved or context.pool)
    sessions = app.state.sessions = Sessions(book, context.capabilities, sign_in, public_url)
    add_docs_page(app)
    add_sign_in_facts(app, cli_client)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = partial(document, app)  # type: ignore[method-assign]
    add_error_handlers(app)
    app.router.routes[:0] = quick_routes(app.router, context)
    routes = [route for router in (app.router, *ROUTERS) for route in router.routes]
    operations = app.state.operations = operations_of(routes)
    app.add_middleware(BodyLimit, limit_bytes=MAX_BODY_BYTES)
    app.add_middleware(RequestRules, operations=operations)
    app.add_middleware(RequestLimit, uncounted=FROM_MEMORY)
    app.add_middleware(InTurn)
    app.add_middleware(
        AccessControl,
        book=book,
        web=web,
        public=[one.template for one in operations if not one.needs],
        per_s=key_requests_per_s,
        sessions=sessions,
        tokens=tokens,
    )
    app.add_middleware(RequestMetrics, registry=registry)
    if root_path:
        app.add_middleware(SubPath, root=root_path)
    return app
