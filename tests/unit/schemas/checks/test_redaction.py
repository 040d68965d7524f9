"""Which values count as secrets."""

from hocket.schemas.checks.redaction import HIDDEN, MIN_SECRET_CHARS, Redactor


def test_a_value_is_a_secret_from_so_many_characters_on() -> None:
    secret, word = "s" * MIN_SECRET_CHARS, "w" * (MIN_SECRET_CHARS - 1)
    assert Redactor([secret, word])(f"{secret} {word}") == f"{HIDDEN} {word}"
