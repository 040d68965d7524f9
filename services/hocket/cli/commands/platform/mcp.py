"""`hocket mcp`: the platform's pipelines as tools of an MCP server."""

from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.remote.target import target_of

if TYPE_CHECKING:
    from hocket.cli.remote.api import Api

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8082
DEFAULT_WAIT_S = 45.0
"""Less than the minute after which clients give up on a call."""
MAX_WAIT_S = 3_600.0
LOOK_TIMEOUT_S = 5.0
"""How long the start waits for the names of the pipelines: clients wait for the server."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def mcp(
    context: typer.Context,
    pipelines: Annotated[
        str | None,
        typer.Option(help="Pipelines to serve as tools: order,research. Default: all."),
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP at /mcp instead of stdio.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on, with --http.")] = DEFAULT_HOST,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="Port to listen on, with --http; 0 picks any free one."
        ),
    ] = DEFAULT_PORT,
    wait_s: Annotated[
        float, typer.Option(min=0, max=MAX_WAIT_S, help="Seconds a call waits for its run.")
    ] = DEFAULT_WAIT_S,
) -> None:
    """Serve pipelines as tools to agents and editors, over stdio or HTTP.

    Over HTTP, the caller's own key (`Authorization: Bearer ...`) decides what it may do. On loopback
    addresses, callers without a key use yours; on other addresses they are refused.
    """
    import asyncio
    from importlib.metadata import version

    from hocket.cli.mcp.named_pipelines import missing, names_of
    from hocket.cli.mcp.server import McpPlatform, http_app
    from hocket.cli.mcp.stdio import serve_stdio

    if not http and (host, port) != (DEFAULT_HOST, DEFAULT_PORT):
        option = "--port" if host == DEFAULT_HOST else "--host"
        raise typer.BadParameter(f"{option} applies to --http; add --http")
    names = names_of(pipelines)
    target = target_of(context).anew()
    own = target.api()
    if unknown := missing(target.api(LOOK_TIMEOUT_S), names):
        if not http:
            raise unknown
        typer.echo(f"Warning: {unknown}", err=True)  # the tenants of callers may have them

    def api_for(key: str | None) -> "Api":
        if key is None and http and host not in LOOPBACK:
            from hocket.cli.terminal.errors import KeyNeeded

            raise KeyNeeded
        if key is not None:
            return own.with_key(key)
        return target.anew().api()  # maybe with a renewed token, which takes seconds

    platform = McpPlatform(api_for, names, wait_s * 1000)
    server = platform.server(version("hocket"))
    if not http:
        asyncio.run(serve_stdio(server))
        return
    _serve(http_app(server, host), host, port)


def _serve(app: object, host: str, port: int) -> None:
    """Serve until Ctrl-C or SIGTERM, and print the address; raises AddressUnusable."""
    import socket

    import uvicorn

    from hocket.kit.web_requests import in_url

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            from hocket.cli.terminal.errors import AddressUnusable

            raise AddressUnusable(host=host, port=port, reason=error.strerror or error) from error
        listening.listen()  # before the address is printed, so that clients can connect
        typer.echo(f"MCP at http://{in_url(host)}:{listening.getsockname()[1]}/mcp")
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            log_level="warning",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listening])
