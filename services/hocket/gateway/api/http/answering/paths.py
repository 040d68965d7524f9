"""The paths of the HTTP door."""

from aiohttp import web

from hocket.gateway.api.http.errors import PathUnknown, QueryUnknown
from hocket.gateway.core.protocols.openai_api import CHAT, COMPLETIONS, EMBEDDINGS
from hocket.gateway.core.protocols.responses.request import RESPONSES
from hocket.schemas.checks.plain_json import shown_text

PREFIX = "/v1"
DOCUMENT = "/openapi.json"
MAX_SHOWN_CHARS = 100
POSTS = frozenset({CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES})


def path_of(request: web.BaseRequest) -> str:
    """Return the path below `/v1`, without its leading slash;
    raise PathUnknown if it is not valid text."""
    path = request.path
    if "\x00" in path or "\ufffd" in path:
        raise PathUnknown(path=shown_text(path, MAX_SHOWN_CHARS))
    return path.removeprefix(PREFIX).removeprefix("/")


def check_query(request: web.BaseRequest) -> None:
    """Raise QueryUnknown for any query parameter.

    No path here has any, and ignoring one would suggest that it had an effect.
    """
    for name in request.query:
        raise QueryUnknown(field=shown_text(name, MAX_SHOWN_CHARS))
