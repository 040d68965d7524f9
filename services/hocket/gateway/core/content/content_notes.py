"""What was found out about the content of a request, noted on the request itself: a large one takes
long to look through. Pure.
"""

from collections.abc import Callable
from operator import is_
from typing import TypeVar

from hocket.schemas.messages import CallRequest

T = TypeVar("T")


def noted(request: CallRequest, name: str, find: Callable[[CallRequest], T]) -> T:
    """Return what `find` returns for the content of a request; it is called once for each content.

    The note has a `name` that no field of the request has. A copy of the request keeps it as long as
    it has the same content.
    """
    content = (
        request.messages,
        request.documents,
        request.embed,
        request.tools,
        request.response_schema,
        request.openai,
    )
    known: tuple[tuple[object, ...], T] | None = request.__dict__.get(name)
    if known is not None and all(map(is_, known[0], content)):
        return known[1]
    found = find(request)
    request.__dict__[name] = content, found
    return found
