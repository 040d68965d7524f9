"""What texts of a fixed form look like, in words: an error that showed the regular expression would help
few readers."""

from collections.abc import Mapping
from typing import NamedTuple


class TextForm(NamedTuple):
    """The reason and the cure for a text that does not have a form."""

    reason: str
    cure: str


def form_of(pattern: str) -> TextForm:
    """Return the words for a regular expression as a model or a parameter gives it."""
    return _FORMS.get(pattern, _OTHER)


def is_worded(pattern: str) -> bool:
    """Tell whether there are words for a regular expression."""
    return pattern in _FORMS


_OTHER = TextForm("it has a character or a form that is not allowed here", "Correct its spelling.")
_CURSOR = TextForm("it is not a cursor", "Use `next` of the previous page.")
_LAST_NAME = TextForm(
    "it cannot be the last name of a page", "Use the last name of the previous page."
)
_DOLLARS = TextForm("it is not an amount of dollars", "Write it in digits, such as `0.05`.")
_NO_SPACES = TextForm(
    "it has a space, or a character that is not ASCII",
    "Use ASCII letters, digits and punctuation, without spaces.",
)
_PRINTABLE = TextForm(
    "it is empty or has a control character",
    "Use at least one character, and no line breaks or tabs.",
)
_NO_NUL = TextForm("it has the character U+0000", "Remove that character.")

_NAME = TextForm(
    "it is not a name",
    "Use letters, digits, `_` and `-`, at most 63, starting with a letter or digit.",
)

_FORMS: Mapping[str, TextForm] = {
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$": _NAME,
    r"^([A-Za-z0-9][A-Za-z0-9_-]{0,62})?$": _NAME,
    r"^(/[A-Za-z0-9_.~-]{1,64}){0,8}$": TextForm(
        "it is not a path",
        "Start it with `/`, as in `/hocket`, and use letters, digits and `_.~-`, in at most 8 parts of "
        "64 characters.",
    ),
    r"^r[0-9a-f]{24}$": TextForm(
        "it is not a run ID",
        "A run ID is `r` and 24 digits or letters from a to f, such as `r0123456789abcdef01234567`. "
        "`hocket runs list` and `GET /v1/runs` show those of your runs.",
    ),
    r"^b[0-9a-f]{24}$": TextForm(
        "it is not the ID of a bulk operation",
        "It is `b` and 24 digits or letters from a to f. `hocket runs bulk-show` and "
        "`GET /v1/bulk/operations` show them.",
    ),
    r"^msg_[0-9a-f]{24}$": TextForm(
        "it is not the ID of a message",
        "It is `msg_` and 24 digits or letters from a to f: the header `webhook-id` of the message.",
    ),
    r"^[0-9a-f]{12}$": TextForm(
        "it is not the ID of a key",
        "It is 12 digits or letters from a to f: the part of a key between `hk_` and the next `_`. "
        "`hocket keys list` and `GET /v1/keys` show them.",
    ),
    r"^[0-9a-f]{64}$": TextForm(
        "it is not the hash of a row",
        "It is 64 digits or letters from a to f, from an earlier export or verification of the log.",
    ),
    r"^[0-9a-f]{24}$": TextForm(
        "it is not the ID of a queue of runs",
        "It is 24 digits or letters from a to f. `hocket flow list` and `GET /v1/flow` show them.",
    ),
    r"^([0-9]{1,17}):([^\x00-\x1f\x7f]+)$": _CURSOR,
    r"^[0-9]{1,17}:[0-9]{1,9}:[0-9]{1,9}:[0-9]{1,9}:[^\x00-\x1f\x7f]*$": _CURSOR,
    r"^[0-9]{1,6}$": _CURSOR,
    r"^[1-9][0-9]*$": _CURSOR,
    r"^[0-9]{1,18}(\.[0-9]{1,9})?$": TextForm(
        "it is not the ID of an event", "Use the `id` of the last event received, or leave it out."
    ),
    r"^[A-Za-z0-9_-]*$": _LAST_NAME,
    r"^[A-Za-z0-9_.-]*$": _LAST_NAME,
    r"^[!-~]*$": _LAST_NAME,
    r"^[A-Za-z0-9_.-]+$": TextForm(
        "it is not the name of a node type",
        "Use letters, digits, `_`, `-` and `.`, as in `llm` or `crm.lookup`. `hocket types` lists them.",
    ),
    r"^[A-Za-z0-9][A-Za-z0-9_.@-]*$": TextForm(
        "it is not a pool",
        "Write a node type, such as `crm.lookup`, followed by `@` and a queue if it has one.",
    ),
    r"^[a-z][a-z0-9_]{0,30}$": TextForm(
        "it is not a queue",
        "Use at most 31 lower-case letters, digits and `_`, starting with a letter.",
    ),
    r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$": TextForm(
        "it is not the name of a label",
        "Use letters, digits and `_.:-`, starting with a letter or digit, such as `customer`.",
    ),
    r"^[!-~]([ -~]*[!-~])?$": TextForm(
        "it is empty, begins or ends with a space, or has a character that is not ASCII",
        "Use ASCII letters, digits and punctuation, with spaces only in between.",
    ),
    r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$": TextForm(
        "it is not a subject",
        "Use letters, digits, `_` and `-`, with dots in between, such as `orders.read`.",
    ),
    "^(float|base64)$": TextForm("it is not one of its values", "Use `float` or `base64`."),
    r"^[A-Za-z_][A-Za-z0-9_]*$": TextForm(
        "it is not an identifier", "Use letters, digits and `_`, not starting with a digit."
    ),
    r"^[A-Za-z][A-Za-z0-9_+/-]*$": TextForm(
        "it is not a time zone", "Write a name such as `Europe/Berlin`."
    ),
    r"^https?://[\x21-\x7e]+$": TextForm(
        "it is not a web address", "Write an address such as `https://example.com/hook`."
    ),
    r"^[0-9]{1,12}(\.[0-9]{1,12})?$": _DOLLARS,
    r"^[0-9]{1,9}(\.[0-9]{1,9})?$": _DOLLARS,
    r"^[\x21-\x7e]+$": _NO_SPACES,
    r"^[^\x00-\x1f\x7f]+$": _PRINTABLE,
    r"^[^\x00-\x1f\x7f]*$": TextForm(
        "it has a control character", "Remove line breaks, tabs and the like."
    ),
    r"^[^\x00]+$": _NO_NUL,
    r"^[^\x00]*$": _NO_NUL,
}
"""By regular expression. A test checks that it has all of the REST API and of the settings."""
