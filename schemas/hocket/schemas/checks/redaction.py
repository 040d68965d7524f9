"""Removes secrets from texts that people read: logs and errors. Pure."""

import re
from collections.abc import Iterable

HIDDEN = "***"
MIN_SECRET_CHARS = 8
"""Shorter values do not count as secrets, because they would match parts of ordinary words."""

_URL_PASSWORD = re.compile(r"(://[^\s/:@\"'<>]*:)[^\s/@\"'<>]+(?=@)")


def without_url_passwords(text: str) -> str:
    """Return the text with the passwords of URLs (`scheme://user:password@host`) hidden."""
    return _URL_PASSWORD.sub(rf"\1{HIDDEN}", text) if "://" in text else text


class Redactor:
    """Hides the passwords of URLs, and known secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        self._secrets = sorted(known, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return without_url_passwords(text)
