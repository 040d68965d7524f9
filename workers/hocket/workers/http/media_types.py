"""What an answer says that it is."""

from aiohttp import ClientResponse


def media_type(response: ClientResponse) -> tuple[str, str]:
    """Return the media type of an answer, in lower case, and the encoding that it names, "" if it names
    none that can be read."""
    try:
        charset = response.charset
        return response.content_type.lower(), charset if isinstance(charset, str) else ""
    except Exception:  # aiohttp fails in many ways on a header such as `text/plain; charset*`
        named = response.headers.get("content-type", "")
        return named.partition(";")[0].strip().lower(), ""
