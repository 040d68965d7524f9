"""Serves the API below a path prefix assigned by a proxy."""

from starlette.types import ASGIApp, Receive, Scope, Send


class SubPath:
    """ASGI middleware: serves requests below `root` as if they were at the top level, and links point
    below `root` again. Proxies that strip the prefix are supported as well."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app = app
        self._root = root
        self._raw = root.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "root_path": self._root}
            if scope["path"].startswith(self._root + "/"):
                scope["path"] = scope["path"].removeprefix(self._root)
                raw = scope.get("raw_path")
                if raw is not None:
                    scope["raw_path"] = raw.removeprefix(self._raw)
        await self._app(scope, receive, send)
