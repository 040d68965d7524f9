"""Removes secrets from texts that people read: logs and errors. Pure."""

import json
import re
from collections.abc import Iterable

HIDDEN = "***"
MIN_SECRET_CHARS = 8
"""Shorter values do not count as secrets, because they would match parts of ordinary words."""

_URL_PASSWORD = re.compile(r"(://[^\s/:@\"'<>]*:)[^\s/\"'<>]+(?=@)")
"""A password may have an `@` of its own, and several servers may follow one scheme: what stands before
the last `@` is hidden."""
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^\s&\"'<>]+", re.IGNORECASE)


def without_url_passwords(text: str) -> str:
    """Return the text with the passwords of URLs (`scheme://user:password@host`, and libpq's
    `?password=password`) hidden."""
    if "://" not in text:
        return text
    return _QUERY_PASSWORD.sub(rf"\1{HIDDEN}", _URL_PASSWORD.sub(rf"\1{HIDDEN}", text))


class Redactor:
    """Hides the passwords of URLs, and known secrets, also as they are written in JSON and by `repr`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        written = {form for secret in known for form in _written(secret)}
        self._secrets = sorted(written, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return without_url_passwords(text)


def _written(secret: str) -> Iterable[str]:
    """Return a secret as it is, and with what other notations escape in it: quotes, backslashes, line
    breaks, and characters beyond ASCII."""
    return (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
    )
