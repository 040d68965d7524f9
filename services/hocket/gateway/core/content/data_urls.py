"""Files in base64 within a call: data URLs, and what the field `file_data` holds. Pure.

A file of text is read as far as a lenient decoder reads it: line breaks, either alphabet of base64, a
missing padding, and one character too many cost no text.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error, a2b_base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass

FILE_DATA = "file_data"
"""The field of a message's part that holds a file."""
_SCHEME = "data:"
_MIME = r"(?:[\w.+-]{1,127}+/[\w.+-]{1,127}+)?"
_HEAD = re.compile(
    rf"data:[ \t]{{0,8}}+({_MIME})[ \t]{{0,8}}+"
    r"(?:;[ \t]{0,8}+[\w.+-]{1,127}(?:=(?:[\w.=+%'-]{0,127}|\"[^\"@]{0,127}\"))?[ \t]{0,8}+){0,8}"
    r";[ \t]{0,8}+base64[ \t]{0,8}+,",
    re.ASCII | re.IGNORECASE,
)
_FILE_HEAD = re.compile(
    rf"\s{{0,8}}+(?:data:)?\s{{0,8}}+({_MIME})"
    r"(?:[^,\"]|\"[^\"]{0,255}\"){0,1024}?;\s{0,8}+base64\s{0,8}+,",
    re.ASCII | re.IGNORECASE,
)
"""What a lenient reader takes for the head of a data URL."""
_CONTENT = re.compile(r"[A-Za-z0-9+/=_\r\n-]*")
_LINES = re.compile(r"(?:[A-Za-z0-9+/_-]{60,}+\r?\n)*[A-Za-z0-9+/_-]*={0,2}[\r\n]*")
"""Base64 in one line, or in lines as long as encoders make them: what has short ones may be words."""
_TEXT = re.compile(
    r"text/.*|application/(?:[\w.+-]+\+)?(?:json|xml|csv|yaml|x-yaml|x-ndjson|jsonl)",
    re.IGNORECASE,
)
"""Types of files that are text."""
_USUAL_TYPE = "text/plain"
"""The type of a data URL that names none (RFC 2397)."""
_STANDARD = str.maketrans("-_", "+/", "\r\n")
_NO_BASE64 = re.compile(rb"[^A-Za-z0-9+/=]+")
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""The encodings that a mark at the beginning tells."""
_OVERLAP_CHARS = 64
"""How much of base64 is kept as text, too, if text follows: a value may begin in what looks like it."""
_COUNTED_CHARS = 20_000
Change = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class DataUrl:
    """The type of a data URL, and where its content begins."""

    media_type: str
    begin: int

    @property
    def is_text(self) -> bool:
        """Whether it holds a text."""
        return _TEXT.fullmatch(self.media_type) is not None


def data_url(text: str) -> DataUrl | None:
    """Return what a text holds that really is a data URL, and does not just begin like one."""
    url = _begun(text)
    return url if url is not None and _CONTENT.fullmatch(text, url.begin) else None


def with_text(url: DataUrl, text: str, change: Change) -> str:
    """Return a data URL with its text changed, if it holds one."""
    if not url.is_text:
        return text
    content, _ = _decoded(text[url.begin :])
    changed = _changed(content, change)
    return text if changed == content else text[: url.begin] + b64encode(changed).decode()


def text_or_file(text: str, change: Change) -> str:
    """Return a text changed, or a data URL with its text changed, if it holds one."""
    url = data_url(text)
    return change(text) if url is None else with_text(url, text, change)


def file_with_text(text: str, change: Change) -> str:
    """Return what `file_data` holds with its text changed: a file of text as a data URL, or base64 of
    UTF-8 or UTF-16. Whatever is no file counts as text.

    Behind a head, base64 that decoders read differently is written anew, so that none of them finds
    another text.
    """
    head = _FILE_HEAD.match(text)
    if head is None:
        content, _ = _decoded(text)
        changed = _changed(content, change) if _is_text(content) else content
        return change(text) if changed == content else b64encode(changed).decode()
    told = head[0] if _HEAD.fullmatch(head[0]) else change(head[0])
    if head[1] and not _TEXT.fullmatch(head[1]):
        return text if told == head[0] else told + text[head.end() :]
    content, is_exact = _decoded(text[head.end() :])
    changed = _changed(content, change)
    if is_exact and changed == content:
        return told + text[head.end() :]
    return told + b64encode(changed).decode()


def in_short(text: str, most_chars: int) -> str:
    """Return a data URL as its head and size, with the text that follows it; any other text as it is.

    Of a longer text, only the first `most_chars` are looked at.
    """
    url = _begun(text)
    if url is None:
        return text
    head = text[: url.begin].rpartition(";")[0]
    if len(head) == len(_SCHEME):
        head += url.media_type
    return _short(text, url.begin, most_chars, f"{head}, ")


def file_in_short(text: str, most_chars: int) -> str:
    """Return what `file_data` holds like `in_short`, also if it is no data URL."""
    if text[: len(_SCHEME)].lower() == _SCHEME:
        return in_short(text, most_chars)
    return _short(text, 0, most_chars, "")


def _begun(text: str) -> DataUrl | None:
    """Return what a text begins that begins like a data URL."""
    if text[: len(_SCHEME)].lower() != _SCHEME:
        return None
    head = _HEAD.match(text)
    return None if head is None else DataUrl(head[1] or _USUAL_TYPE, head.end())


def _short(text: str, begin: int, most_chars: int, head: str) -> str:
    run = _LINES.match(text, begin, max(most_chars, begin))
    end = begin if run is None else run.end()
    following = ""
    if end < min(len(text), most_chars - 1):  # 1: a line may end there
        end -= _OVERLAP_CHARS
        if end <= begin:
            return text
        following = text[end : end + most_chars + 1]
    else:
        end = len(text)
    counted = min(end, begin + _COUNTED_CHARS)  # beyond that, line breaks count as content
    breaks = text.count("\r", begin, counted) + text.count("\n", begin, counted)
    size = (end - begin - breaks) * 3 // 4 - text.count("=", max(end - 4, begin), end)
    return f"{head}{size} bytes{following and ' '}{following}"


def _decoded(encoded: str) -> tuple[bytes, bool]:
    """Return what base64 says to a lenient decoder, and whether each decoder reads the same."""
    plain = encoded.translate(_STANDARD)
    bare = plain.rstrip("=")
    try:
        return b64decode(bare + "=" * (-len(bare) % 4), validate=True), True
    except ValueError:
        data = _NO_BASE64.sub(b"", plain.encode("ascii", "ignore"))
    for some in (data, data.rstrip(b"=")[:-1]):
        try:
            return a2b_base64(some + b"=="), False
        except Error:
            continue
    return b"", False


def _changed(content: bytes, change: Change) -> bytes:
    """Return the bytes of a text with its text changed, in each encoding that it may have.

    What does not fit the encoding becomes a question mark. With placeholders nothing does.
    """
    for encoding in _encodings(content):
        errors = "surrogatepass" if encoding in _UTF_16.values() else "replace"
        odd = content[len(content) // 2 * 2 :] if errors == "surrogatepass" else b""
        said = content[: len(content) - len(odd)].decode(encoding, errors)
        changed = change(said)
        if changed != said:
            content = changed.encode(encoding, errors) + odd
    return content


def _encodings(content: bytes) -> Iterator[str]:
    """Yield the encodings in which bytes may be read. If they are neither UTF-8 nor UTF-16, each byte
    counts as a character, so that nothing but what is changed becomes different."""
    marked = _UTF_16.get(content[:2])
    if marked is not None:
        yield marked
        return
    yield "utf-8" if _is_utf_8(content) else "latin-1"
    if b"\0" in content:
        yield from _UTF_16.values()


def _is_text(content: bytes) -> bool:
    return content[:2] in _UTF_16 or _is_utf_8(content)


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except ValueError:
        return False
    return True
