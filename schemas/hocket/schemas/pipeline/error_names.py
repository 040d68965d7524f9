"""Checks the error classes and codes in `on` of a retry or a fallback: their number and spelling."""

from collections.abc import Sequence

from hocket.schemas.errors import ErrorClass, InvalidInput

CLASSES = tuple(str(name) for name in ErrorClass)
MAX_ERRORS = 50
"""The most error classes and codes in one `on`."""
MAX_ERROR_CHARS = 200
EVERY_ERROR = frozenset({"*", "all", "any", "error", "errors"})


def check_errors(patterns: Sequence[str], field: str) -> None:
    """Refuse names that are not error classes but can only be meant as such."""
    longest = max(map(len, patterns), default=0)
    if len(patterns) > MAX_ERRORS or longest > MAX_ERROR_CHARS:
        raise InvalidInput(
            field=field,
            reason=f"it has more than {MAX_ERRORS} names"
            if len(patterns) > MAX_ERRORS
            else f"one of its names has {longest} characters",
            cure=f"Name at most {MAX_ERRORS} error classes and codes, of up to {MAX_ERROR_CHARS} "
            "characters each.",
        )
    for pattern in patterns:
        if pattern in CLASSES:
            continue
        if pattern.lower() in EVERY_ERROR:
            raise InvalidInput(
                field=field,
                reason=f"`{pattern}` is not an error class",
                cure=f"Name classes ({', '.join(CLASSES)}) or codes, or remove `on`.",
            )
        meant = next((name for name in CLASSES if _is_misspelt(pattern.lower(), name)), None)
        if meant is not None or not pattern.strip():
            raise InvalidInput(
                field=field,
                reason=f"`{pattern}` is not an error class",
                cure=f"Write `{meant}`." if meant else f"Use one of: {', '.join(CLASSES)}.",
            )


def _is_misspelt(word: str, name: str) -> bool:
    """Tell whether a word is a name with one typo, or two in a long name: a letter that is added,
    missing, wrong, or swapped with the next."""
    slips = 2 if len(name) > 7 else 1
    if abs(len(word) - len(name)) > slips or len(set(word) ^ set(name)) > 2 * slips:
        return False
    return _within(word, name, slips)


def _within(one: str, other: str, slips: int) -> bool:
    """Tell whether at most `slips` typos lead from one word to the other."""
    if one == other:
        return True
    if not slips:
        return False
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if same is None:
        return abs(len(one) - len(other)) <= slips
    one, other, left = one[same:], other[same:], slips - 1
    return (
        _within(one[1:], other[1:], left)
        or _within(one[1:], other, left)
        or _within(one, other[1:], left)
        or (one[:2] == other[1::-1] and _within(one[2:], other[2:], left))
    )
