"""The page at /docs: Swagger UI over the OpenAPI document, with its scripts and styles from the package
`fastapi-offline`, so that it works without the internet and tells no one else what is looked at."""

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse

PAGE = "/docs"
ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")
MAX_AGE_S = 86_400


def add_docs_page(app: FastAPI) -> None:
    """Serve the page and its parts, each under an address of its own."""
    folder = Path(str(files("fastapi_offline"))) / "static"

    async def page(request: Request) -> HTMLResponse:
        root = request.scope.get("root_path", "")
        script, style, icon = (f"{root}{PAGE}/{name}" for name in ASSETS)
        return get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title="Hocket's REST API",
            swagger_js_url=script,
            swagger_css_url=style,
            swagger_favicon_url=icon,
        )

    async def asset(request: Request) -> FileResponse:
        path = folder / request.url.path.rpartition("/")[2]
        return FileResponse(path, headers={"Cache-Control": f"max-age={MAX_AGE_S}"})

    app.add_route(PAGE, page, include_in_schema=False)
    for name in ASSETS:
        app.add_route(f"{PAGE}/{name}", asset, include_in_schema=False)
