"""Templates that are one text and nothing else: written, and read again without parsing them.

What models emit is data, whatever it looks like (`hocket.schemas.pipeline.emitted`). An answer may have
tens of thousands of such texts, and the parser takes as long for one as for a small program.
"""

import re

_MARK = re.compile(r"\{[{%#]")
_SPECIAL = str.maketrans({"\\": r"\\", '"': r"\"", "\r": r"\r", "\n": r"\n"})
_LITERAL = re.compile(r'\{\{ "([^"\\\r\n]*+(?:\\["\\rn][^"\\\r\n]*+)*)" \}\}')
_ESCAPE = re.compile(r'\\(["\\rn])')
_MEANT = {'"': '"', "\\": "\\", "r": "\r", "n": "\n"}


def literal(text: str) -> str:
    """Return a template that gives exactly this text. It is a single string, whatever braces are in it,
    because each part of a template takes time to parse."""
    if not _MARK.search(text):
        return text
    return f'{{{{ "{text.translate(_SPECIAL)}" }}}}'


def text_of(template: str) -> str | None:
    """Return the text that a template consists of (`literal` undone), or None if it may be more."""
    if (found := _LITERAL.fullmatch(template)) is None:
        return None
    text = found[1]
    return _ESCAPE.sub(lambda escape: _MEANT[escape[1]], text) if "\\" in text else text
