"""The `http` node: one request to a configured HTTP service, checked and bounded."""

import codecs
import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientTimeout, StreamReader
from yarl import URL

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError
from hocket.workers.call_time import call_time_ms
from hocket.workers.http.errors import (
    HttpAnswerTooLarge,
    HttpAnswerUnreadable,
    HttpFailed,
    HttpNotAuthorized,
    HttpRateLimited,
    HttpRedirected,
    HttpRejected,
    HttpTimeout,
    HttpUnreachable,
)
from hocket.workers.http.media_types import media_type
from hocket.workers.http.remote_calls import (
    charge_request,
    identity_headers,
    json_value,
    retry_at_ms,
    text_value,
)
from hocket.workers.http.remote_errors import reason_of
from hocket.workers.http.requests import request_of
from hocket.workers.http.services import Services
from hocket.workers.runtime.execution.context import Context

SHOWN_HEADERS = ("content-type", "etag", "last-modified", "link", "location", "retry-after")
"""Headers of the answer that are included in the output."""
_CHARSETS = re.compile(
    r"ascii|utf-8(-sig)?|utf-(16|32)(-[lb]e)?|iso8859-\d+|cp\d+|mac-\w+|koi8-[rtu]|big5\w*|gb\w+|hz"
    r"|euc_\w+|shift_jis\w*|iso2022_\w+|johab|tis-620|ptcp154|kz1048"
)
"""Python's names of the encodings that answers may have. Other Python encodings are not text encodings
(`unicode_escape`), or take time quadratic in the size of the answer (`punycode`, `idna`)."""
_UNAUTHORIZED = (401, 403, 407)
_SAYS_WHEN = (429, 503)
_TRANSIENT = (408, 425)


class HttpNode:
    """Sends requests to the configured services."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, context: Context) -> dict[str, Any]:
        """Return `{status, headers, body}`; the body is the parsed JSON, or otherwise text, or None if
        there is none."""
        config = context.config
        service = self._services.get(config["service"], context.tenant)
        request = request_of(config, context.input, service)
        left_ms = call_time_ms(context)
        component = f"http:{service.name}"
        with _typed_errors(component, left_ms):
            async with service.session.request(
                request.method,
                URL(request.url, encoded=True),
                headers={
                    **request.headers,
                    "accept-encoding": "identity",
                    **identity_headers(context),
                },
                data=request.body,
                allow_redirects=False,
                timeout=ClientTimeout(total=left_ms / 1000, ceil_threshold=inf),
            ) as response:
                charge_request(context, service.settings.request_usd)
                status = response.status
                if not 200 <= status < 300 and status not in (config.get("accept") or ()):
                    response.close()  # the rest of the answer is not read
                    raise _refused(response, component)
                body = await _read(response, service.settings.max_bytes, component)
        return {
            "status": status,
            "headers": {
                name: shown_text(response.headers[name], 2_000)
                for name in SHOWN_HEADERS
                if name in response.headers
            },
            "body": await _value(response, body, component),
        }


async def _read(response: ClientResponse, limit: int, component: str) -> bytes:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise HttpAnswerUnreadable(
            reason=f"it is compressed (`{shown_text(encoding)}`), which was not asked for",
            component=component,
        )
    content: StreamReader = response.content
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > limit:
            response.close()
            raise HttpAnswerTooLarge(limit_bytes=limit, component=component)
    return bytes(body)


async def _value(response: ClientResponse, body: bytes, component: str) -> Any:
    if not body:
        return None
    kind, charset = media_type(response)
    if kind == "application/json" or kind.endswith("+json"):
        return await json_value(
            body, lambda reason: HttpAnswerUnreadable(reason=reason, component=component)
        )
    if not kind.startswith("text/") and not kind.endswith(("/xml", "+xml", "/csv", "/yaml")):
        raise HttpAnswerUnreadable(
            reason=f"it is `{shown_text(kind)}`, which is not text", component=component
        )
    return await text_value(body, _charset(charset or "utf-8"))


def _charset(named: str) -> str:
    """Return the named encoding if it is a text encoding, and a default otherwise."""
    try:
        known = codecs.lookup(named).name
    except (LookupError, ValueError):
        return "utf-8"
    return known if _CHARSETS.fullmatch(known) else "utf-8"


def _refused(response: ClientResponse, component: str) -> HocketError:
    """Return the error for a status."""
    status = response.status
    fields: dict[str, Any] = {"status": status, "component": component}
    if status in _SAYS_WHEN:
        at_ms = retry_at_ms(response.headers.get("retry-after", ""))
        fields |= {"retry_at_ms": at_ms} if at_ms is not None else {}
        return HttpRateLimited(**fields) if status == 429 else HttpFailed(**fields)
    if status >= 500 or status in _TRANSIENT:
        return HttpFailed(**fields)
    if status in _UNAUTHORIZED:
        return HttpNotAuthorized(**fields)
    if 300 <= status < 400:
        return HttpRedirected(**fields)
    return HttpRejected(**fields)


@contextmanager
def _typed_errors(component: str, timeout_ms: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise HttpTimeout(timeout_ms=round(timeout_ms), component=component) from error
    except (ClientError, OSError) as error:
        reason = reason_of(error)
        raise HttpUnreachable(reason=reason, component=component) from error
    except ValueError as error:  # an answer that is not HTTP
        raise HttpAnswerUnreadable(
            reason=shown_text(str(error), 300), component=component
        ) from error
