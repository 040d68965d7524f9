"""A small client of the REST API: one request at a time, JSON in and out, every wait bounded."""

import http.client
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

if TYPE_CHECKING:
    from hocket.schemas.errors import HocketError

TIMEOUT_S = 30.0
answered: list[str] = []
"""The URLs whose answers this command has received."""
PART_BYTES = 64 * 1024
STREAMED = frozenset({"application/x-ndjson", "text/csv"})
MAX_REPLY_BYTES = 64 * 1024 * 1024


class Api:
    """The API at `url`, used with a key, and for a tenant if one is named. `timeout_s` limits each wait
    (by default TIMEOUT_S). Raises ApiUnreachable, and
    ApiRefused with the API's error."""

    def __init__(
        self,
        url: str,
        tenant: str | None = None,
        key: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s or TIMEOUT_S
        self.headers = {} if tenant is None else {"X-Hocket-Tenant": tenant}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"

    def with_key(self, key: str) -> "Api":
        """Return a client with another key, for that key's tenant."""
        return Api(self.url, key=key)

    @property
    def identity(self) -> str:
        """The identity of the caller: the same text for the same key and tenant."""
        return "\n".join(f"{name}:{value}" for name, value in sorted(self.headers.items()))

    def get(self, path: str, **query: Any) -> Any:
        """Return what is at `path`; query values that are None are left out."""
        return self._ask("GET", with_query(path, query), None)

    def stream(self, path: str, **query: Any) -> Iterator[bytes]:
        """Yield what is at `path` in parts, whatever its length; each part must arrive in time."""
        connection = None
        try:
            connection, base = _connection(self.url, self._timeout_s)
            connection.request("GET", base + with_query(path, query), None, self.headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise self._refused(answer.status, _read(answer, self._timeout_s))
            if answer.headers.get_content_type() not in STREAMED:
                raise self.unreachable("the response is not what Hocket sends")
            self._note_answer()
            while part := answer.read1(PART_BYTES):
                yield part
            if answer.length:  # http.client takes the end of a connection for that of the body
                raise http.client.IncompleteRead(b"", answer.length)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self.unreachable(reason) from error
        finally:
            if connection is not None:
                connection.close()

    def get_tagged(self, path: str) -> tuple[Any, str | None]:
        """Return what is at `path`, and its ETag."""
        return self._answer("GET", path, None)

    def post(
        self, path: str, body: Any = None, *, if_match: str | None = None, **query: Any
    ) -> Any:
        """Send a JSON body and return the answer."""
        content = encoded(body if body is not None else {})
        return self._ask("POST", with_query(path, query), content, if_match)

    def put(self, path: str, body: Any, *, if_match: str | None = None) -> Any:
        """Put a JSON body at `path`, if its ETag is still `if_match`, and return the answer."""
        return self._ask("PUT", path, encoded(body), if_match)

    def delete(self, path: str, *, if_match: str | None = None, **query: Any) -> Any:
        """Delete what is at `path`, and return the answer, if there is one."""
        return self._ask("DELETE", with_query(path, query), None, if_match)

    def _ask(self, method: str, path: str, body: bytes | None, if_match: str | None = None) -> Any:
        return self._answer(method, path, body, if_match)[0]

    def _answer(
        self, method: str, path: str, body: bytes | None, if_match: str | None = None
    ) -> tuple[Any, str | None]:
        try:
            connection, base = _connection(self.url, self._timeout_s)
        except ValueError as error:
            raise self.unreachable(str(error)) from error
        headers = dict(self.headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        if if_match is not None:
            headers["If-Match"] = if_match
        try:
            connection.request(method, base + path, body, headers)
            answer = connection.getresponse()
            data = _read(answer, self._timeout_s)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self.unreachable(reason) from error
        finally:
            connection.close()
        return self.value_of(method, answer.status, data), answer.headers["ETag"]

    def value_of(self, method: str, status: int, data: bytes) -> Any:
        """Return the content of an answer, None if it is empty, or raise its error."""
        if status not in range(200, 300):
            raise self._refused(status, data)
        if not data and method != "GET":
            self._note_answer()
            return None
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self.unreachable("the response is not JSON that Hocket sends")
        self._note_answer()
        return value

    def _note_answer(self) -> None:
        if self.url not in answered:
            answered.append(self.url)

    def _refused(self, status: int, data: bytes) -> "HocketError":
        from hocket.cli.terminal.errors import ApiRefused
        from hocket.schemas.errors import ErrorInfo

        try:
            return ApiRefused(ErrorInfo.model_validate(json.loads(data)["error"]), status)
        except (
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
        ):  # not Hocket's answer: from a proxy or another server
            return self.unreachable(f"it responded with status {status} and no Hocket error")

    def unreachable(self, reason: str) -> "HocketError":
        """Return the error for an API that cannot be reached, or does not answer as Hocket's does."""
        from hocket.cli.terminal.errors import ApiUnreachable

        return ApiUnreachable(url=self.url, reason=reason)


def every(api: Api, place: str, what: str, *, limit: int | None, **query: Any) -> Iterator[Any]:
    """Yield what all pages of a list have, `limit` at a time. With None, a server that does not
    know pages here understands the request, too."""
    after = None
    while True:
        page = api.get(place, after=after, limit=limit, **query)
        yield from page[what]
        after = page.get("next")  # a server of an earlier release may not have pages here
        if after is None or not page[what]:
            return


def known_run(api: Api, run_id: str) -> dict[str, Any] | None:
    """Return a run, or None if the API does not know it: its task may have been taken, and wait for a
    coordinator."""
    from hocket.cli.terminal.errors import ApiRefused

    try:
        run: dict[str, Any] = api.get(path("runs", run_id))
    except ApiRefused as error:
        if error.info().code == "run_unknown":
            return None
        raise
    return run


def _connection(url: str, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection to the host of a URL, and the URL's path; raise ValueError."""
    place = urlsplit(url)
    make = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    return make(place.hostname or "", place.port, timeout=timeout_s), place.path


def _read(answer: http.client.HTTPResponse, timeout_s: float) -> bytes:
    """Return the body; raises TimeoutError if it does not arrive completely in time."""
    until, data = time.monotonic() + timeout_s, bytearray()
    while len(data) < MAX_REPLY_BYTES and (part := answer.read1(MAX_REPLY_BYTES - len(data))):
        data += part
        if time.monotonic() > until:
            raise TimeoutError(f"its response was not complete after {timeout_s:g} s")
    return bytes(data)


def encoded(body: Any) -> bytes:
    """Return a body as the shortest JSON, because the API limits its size: escapes would triple texts
    that are not English. Only what cannot be UTF-8 is escaped, so that the API names its field."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def path(*parts: str) -> str:
    """Return a path below /v1 with its parts quoted; raise InvalidInput for a part that would lead
    elsewhere."""
    return "/v1/" + "/".join(_quoted(part) for part in parts)


def _quoted(part: str) -> str:
    if part not in ("", ".", ".."):
        return quote(part, safe="", errors="replace")
    from hocket.schemas.errors import InvalidInput

    raise InvalidInput(
        field="argument",
        reason=f"`{part}` is no id and no name",
        cure="Give the one that is meant.",
    )


def with_query(path: str, query: dict[str, Any]) -> str:
    given = {key: _text(value) for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
