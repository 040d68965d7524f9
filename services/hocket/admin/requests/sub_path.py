"""The API below a path that a proxy gives it."""

from starlette.types import ASGIApp, Receive, Scope, Send


class SubPath:
    """ASGI middleware: what is asked below `root` is answered as if it stood at the top, and links lead
    below it again. Proxies that take the path away before they ask are answered alike."""

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
