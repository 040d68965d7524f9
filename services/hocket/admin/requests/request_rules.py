"""Refuses requests before they reach an endpoint: unknown paths and parameters, bearers that lack a
permission, bodies of the wrong type or compressed.

The rules are derived from the same routes as the paths, methods, query parameters and media types in the
OpenAPI document. So nothing is accepted that the document does not list, and nothing is ignored
silently: the error names an unknown or repeated parameter.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import Pattern
from urllib.parse import parse_qsl, unquote_to_bytes

from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hocket.admin.console.error_pages import refusal
from hocket.admin.requests.identity import BEARER
from hocket.admin.requests.permissions import ANY_QUERY, needed_by
from hocket.kit.web_requests import JSON_TYPES, check_encoding, check_media_type
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput

MAX_SHOWN_CHARS = 100
MAX_QUERY_FIELDS = 100


class AddressMalformed(HocketError):
    """The address cannot be read: {reason}. Percent-encode text as UTF-8."""

    code = "address_malformed"
    error_class = ErrorClass.INVALID


class NoSuchAddress(HocketError):
    """There is nothing at `{path}`. The addresses are listed at /docs."""

    code = "no_such_address"
    error_class = ErrorClass.INVALID


class MethodNotAllowed(HocketError):
    """`{path}` does not accept {method}. Use {allowed}."""

    code = "method_not_allowed"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class Operation:
    """One route, and what it accepts."""

    path: Pattern[str]
    template: str
    needs: tuple[Permission, ...]
    methods: frozenset[str]
    query: frozenset[str]
    headers: frozenset[str]
    media_types: tuple[str, ...]
    any_query: bool = False


class RequestRules:
    """ASGI middleware over the routes of the app. Raises nothing: a refused request gets an error
    answer."""

    def __init__(self, app: ASGIApp, *, operations: Sequence[Operation]) -> None:
        self._app = app
        self._operations = operations
        self._at: dict[str, list[Operation]] = {}
        """The operations at paths without parameters."""
        for one in operations:
            if not one.path.groups:
                self._at.setdefault(one.template, []).append(one)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except MethodNotAllowed as error:
            answer = refusal(scope, error)
            answer.headers["Allow"] = error.fields["allowed"]
            await answer(scope, receive, send)
        except HocketError as error:
            await refusal(scope, error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = _Headers(scope["headers"])
        method = scope["method"]
        operation = self._operation_at(_path(scope), method)
        for permission in operation.needs:
            scope[BEARER].check(permission)
        _check_query(scope["query_string"], None if operation.any_query else operation.query)
        for name in operation.headers:
            if len(headers.all(name)) > 1:
                raise InvalidInput(field=name, reason="it is sent twice", cure="Send it once.")
        if method not in ("GET", "HEAD"):
            has_body = headers.announce_body()
            if has_body:
                check_encoding(headers.all("content-encoding"))
            check_media_type(headers.all("content-type"), operation.media_types, empty=not has_body)

    def _operation_at(self, path: str, method: str) -> Operation:
        """Return the operation at a path; raise NoSuchAddress or MethodNotAllowed."""
        found = self._at.get(path) or [one for one in self._operations if one.path.match(path)]
        if not found:
            raise NoSuchAddress(path=shown_text(path, MAX_SHOWN_CHARS))
        operation = next((one for one in found if method in one.methods), None)
        if operation is None:
            allowed = ", ".join(sorted({name for one in found for name in one.methods}))
            raise MethodNotAllowed(
                method=shown_text(method, MAX_SHOWN_CHARS),
                path=shown_text(path, MAX_SHOWN_CHARS),
                allowed=allowed,
            )
        return operation


class _Headers:
    """The headers of a request by their lower-case names, with all their values."""

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._by_name: dict[str, list[str]] = {}
        for name, value in raw:
            self._by_name.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

    def all(self, name: str) -> Sequence[str]:
        return self._by_name.get(name, ())

    def first(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)

    def announce_body(self) -> bool:
        return bool(self.all("transfer-encoding")) or self.first("content-length") not in (
            None,
            "0",
        )


def operations_of(routes: Iterable[BaseRoute]) -> list[Operation]:
    """Return the operations of an app's routes; raise OperationUndeclared."""
    return [_operation(route) for route in routes if isinstance(route, Route)]


def _operation(route: Route) -> Operation:
    query: frozenset[str] = frozenset()
    headers: frozenset[str] = frozenset()
    media_types: tuple[str, ...] = JSON_TYPES
    if isinstance(route, APIRoute):
        tree = tuple(_dependants(route.dependant))
        query = frozenset(
            name for part in tree for field in part.query_params for name in _names_of(field)
        )
        headers = frozenset(
            field.alias.replace("_", "-").lower() for part in tree for field in part.header_params
        )
        extra: Mapping[str, Mapping[str, Mapping[str, object]]] = route.openapi_extra or {}
        media_types = tuple(extra.get("requestBody", {}).get("content", {})) or JSON_TYPES
    methods = frozenset(route.methods or ())
    needs = needed_by(route.endpoint)
    return Operation(
        route.path_regex,
        route.path_format,
        needs,
        methods,
        query,
        headers,
        media_types,
        any_query=getattr(route.endpoint, ANY_QUERY, False),
    )


def _names_of(field: ModelField) -> Iterable[str]:
    """Return the parameter names of a field: its own, or those of its fields if it is a model."""
    kind = field.field_info.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_fields
    return (field.alias,)


def _dependants(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for part in dependant.dependencies:
        yield from _dependants(part)


def _path(scope: Scope) -> str:
    """Return the path, decoded more strictly than by the server, or raise AddressMalformed."""
    raw = scope.get("raw_path") or scope["path"].encode()
    path = _text(raw.partition(b"?")[0], "its path")
    if path != scope["path"]:
        raise AddressMalformed(reason="its path is not what the server read")
    return path


def _check_query(raw: bytes, known: frozenset[str] | None) -> None:
    if not raw:
        return
    _text(raw.replace(b"+", b" "), "its query")
    try:
        fields = parse_qsl(
            raw.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS
        )
    except ValueError:
        reason = f"its query has more than {MAX_QUERY_FIELDS} fields"
        raise AddressMalformed(reason=reason) from None
    for name, times in Counter(name for name, _ in fields).items():
        if known is not None and name not in known:
            cure = f"Use {', '.join(sorted(known))}." if known else "Send none here."
            raise InvalidInput(
                field=shown_text(name, MAX_SHOWN_CHARS),
                reason="there is no such query parameter",
                cure=cure,
            )
        if times > 1:
            raise InvalidInput(field=name, reason="it is given twice", cure="Send it once.")


def _text(raw: bytes, place: str) -> str:
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise AddressMalformed(reason=f"{place} is not UTF-8") from None
    if "\x00" in text:
        raise AddressMalformed(reason=f"{place} contains the character U+0000")
    return text
