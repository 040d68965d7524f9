"""Extracts the text of a file, with its title and its sections. Pure: bytes in, text out.

Markdown and plain text stay unchanged except for line ends and front matter; HTML keeps its blocks, PDF
its pages. All offsets in Hocket count characters (code points) of this extracted text. A file that
cannot be read raises DocumentUnreadable with the reason.
"""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from bs4 import BeautifulSoup
from bs4.element import NavigableString, PageElement, PreformattedString, Tag
from pypdf import PdfReader
from pypdf.errors import PyPdfError

from hocket.workers.retrieval.errors import DocumentUnreadable

VERSION: Final = 2
"""Increased when the same bytes would give a different text, so that documents are indexed again."""
MAX_PDF_PAGES: Final = 5_000
MAX_TEXT_CHARS: Final = 20_000_000
MAX_HEADING_CHARS: Final = 500
"""The limit on a title and a heading, which are stored with every chunk."""

MEDIA_TYPES: Final = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".txt": "text/plain",
    ".text": "text/plain",
    ".rst": "text/plain",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "text/html",
    ".pdf": "application/pdf",
}

_NOT_STORED = re.compile("[\x00\ud800-\udfff]")
"""Characters that Postgres cannot store."""


@dataclass(frozen=True, slots=True)
class Section:
    """The start of a heading's section; it ends where the next one starts."""

    start: int
    heading_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Extracted:
    """A document's text. `sections` are in order and the first begins at 0."""

    text: str
    title: str
    media_type: str
    sections: tuple[Section, ...]


def extract(data: bytes, source: str) -> Extracted:
    """Return the text of a file named `source`; its extension tells the kind. Raises
    DocumentUnreadable."""
    media_type = MEDIA_TYPES.get(PurePosixPath(source).suffix.lower())
    if media_type is None:
        raise DocumentUnreadable(
            source=source, reason="its name does not tell what kind of file it is"
        )
    text, title, sections = _READERS[media_type](data, source)
    if not text.strip():
        raise DocumentUnreadable(source=source, reason="it contains no text")
    if len(text) > MAX_TEXT_CHARS:
        raise DocumentUnreadable(
            source=source, reason=f"its text has over {MAX_TEXT_CHARS} characters"
        )
    if not sections or sections[0].start > 0:
        sections = [Section(0, ()), *sections]
    named = (title or PurePosixPath(source).stem)[:MAX_HEADING_CHARS]
    return Extracted(text, named, media_type, tuple(sections))


_Read = tuple[str, str, list[Section]]

# ---- Markdown and plain text ----------------------------------------------------------------

_FRONT_START = re.compile(r"---[ \t]*\n")
_FRONT_END = re.compile(r"(?:---|\.\.\.)[ \t]*$")
_FIRST_KEY = re.compile(
    r"""(?!\d+[.)][ \t])[^\s#>|*+<`!\[-].*?:(?:[ \t]|$)|<<:[ \t]|\{[ \t]*(?:["'}]|$)"""
)
"""What a mapping begins with: not what begins a list, a table, a link, a note or a tag."""
_OTHER_KEY = re.compile(r".*?:(?:[ \t]|$)|[ \t]|[-?](?:[ \t]|$)|[\[\]{}]")
"""What a line begins with that goes on with it: a key, an indent, an item, or a bracket."""
_FRONT_TITLE = re.compile(r"^title:(.*)$", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t](.*))?$")
_SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")


def _plain(data: bytes, source: str) -> _Read:
    return _decoded(data, source), "", []


def _markdown(data: bytes, source: str) -> _Read:
    text = _decoded(data, source)
    title = ""
    if end := _front_matter_end(text):
        named = _FRONT_TITLE.search(text, 0, end)
        title = named[1].strip(" \t").strip("\"'") if named else ""
        text = text[end:]
    headings = list(_markdown_headings(text))
    return text, title or _first_heading(headings), _sections(headings)


def _front_matter_end(text: str) -> int:
    """Return where the text after the front matter begins; 0 if there is none: what is between two
    rules is text, unless it looks like a mapping of YAML."""
    opening = _FRONT_START.match(text)
    at = opening.end() if opening else len(text)
    first, has_key = at, False
    while (end := text.find("\n", at)) >= 0:
        line = text[at:end]
        if _FRONT_END.match(line):
            return end + 1 if has_key or not text[first:at].strip() else 0
        if line.strip() and line[0] != "#":
            if not (_OTHER_KEY if has_key else _FIRST_KEY).match(line):
                return 0
            has_key = True
        at = end + 1
    return 0


def _markdown_headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, level, heading) of the headings outside fenced code."""
    fence = ""
    offset, previous, previous_start = 0, "", 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\n")
        mark = _FENCE.match(bare)
        if fence:
            if mark and mark[1].startswith(fence) and not bare.strip(" `~"):
                fence = ""
            bare = ""
        elif mark:
            fence = mark[1]
            bare = ""
        elif atx := _ATX.match(bare):
            yield offset, len(atx[1]), _without_closing(atx[2] or "")
            bare = ""
        elif (rule := _SETEXT.match(bare)) and previous.strip():
            yield previous_start, 1 if rule[1][0] == "=" else 2, previous.strip()
            bare = ""
        previous, previous_start = bare, offset
        offset += len(line)


def _without_closing(heading: str) -> str:
    """Return a heading without an optional closing `##`."""
    bare = heading.strip()
    open_end = bare.rstrip("#")
    return open_end.strip() if open_end[-1:] in ("", " ", "\t") else bare


def _decoded(data: bytes, source: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentUnreadable(source=source, reason=f"it is not UTF-8 text ({error})") from None
    return _NOT_STORED.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))


# ---- HTML -----------------------------------------------------------------------------------

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object"})
_UNSEEN_IN_HEAD = frozenset({"title", "noframes"})
"""What else is not seen of a head. All other text in it, and what has text, ends the head in browsers;
the parser ends it only at `</head>`, which may be left out."""
_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_CELLS = frozenset({"td", "th"})
_ROWS = frozenset({"li", "tr", "dt", "dd", "br", "option"})
_CONTAINERS = (
    "address article aside blockquote body caption details dialog div dl fieldset figcaption figure "
    "footer form header hr html main nav ol p pre section summary table tbody tfoot thead ul"
)
_BLOCKS = frozenset(_CONTAINERS.split()).union(_HEADINGS)
_SPACE = re.compile(r"[ \t\n\f\r]+")


def _html(data: bytes, source: str) -> _Read:
    del source  # anything can be read as HTML
    page = BeautifulSoup(data, "html.parser")
    named = page.title.get_text(" ", strip=True) if page.title is not None else ""
    writer = _HtmlWriter()
    writer.walk(page)
    text = "".join(writer.parts).rstrip()
    headings = [heading for heading in writer.headings if heading[0] < len(text)]
    return text, _NOT_STORED.sub(" ", named) or _first_heading(headings), _sections(headings)


def _is_hidden_by_head(tag: Tag) -> bool:
    return tag.name in _UNSEEN_IN_HEAD and tag.parent is not None and tag.parent.name == "head"


class _HtmlWriter:
    """Writes the visible text, with a break for each block; without recursion, however deep it nests."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.headings: list[tuple[int, int, str]] = []
        self._length = 0
        self._break = ""
        self._space = False

    def walk(self, page: BeautifulSoup) -> None:
        stack: list[tuple[PageElement, bool]] = [(page, False)]
        preformatted = 0
        while stack:
            item, leaving = stack.pop()
            if not isinstance(item, Tag):
                if isinstance(item, NavigableString) and not isinstance(item, PreformattedString):
                    self._write(str(item), preformatted > 0)
                continue
            if item.name in _UNSEEN or _is_hidden_by_head(item):
                continue
            preformatted += (item.name == "pre") * (-1 if leaving else 1)
            self._at_edge(item, leaving)
            if not leaving:
                stack.append((item, True))
                stack.extend((child, False) for child in reversed(item.contents))

    def _at_edge(self, tag: Tag, leaving: bool) -> None:
        if tag.name in _BLOCKS:
            self._separate("\n\n")
        elif tag.name in _ROWS:
            self._separate("\n")
        elif tag.name in _CELLS:  # entered, too: an end tag that is left out ends with the row
            self._separate(" | ")
        if tag.name in _HEADINGS and not leaving:
            title = _SPACE.sub(" ", _NOT_STORED.sub(" ", tag.get_text())).strip()
            if title:
                start = self._length + (len(self._break) if self._length else 0)
                self.headings.append((start, _HEADINGS[tag.name], title))

    def _separate(self, separator: str) -> None:
        ranks = ("", " | ", "\n", "\n\n")
        self._break = max(self._break, separator, key=ranks.index)
        self._space = False

    def _write(self, raw: str, preformatted: bool) -> None:
        text = _NOT_STORED.sub(" ", raw)
        if not preformatted:
            text = _SPACE.sub(" ", text)
        if not text.strip():
            self._space = self._space or bool(text)
            return
        if self._break:
            text = text if preformatted else text.lstrip(" ")
            self._put(self._break if self._length else "")
            self._break = ""
        elif self._space and self._length and not text.startswith(" "):
            self._put(" ")
        self._space = not preformatted and text.endswith(" ")
        self._put(text.rstrip(" ") if self._space else text)

    def _put(self, text: str) -> None:
        self.parts.append(text)
        self._length += len(text)


# ---- PDF ------------------------------------------------------------------------------------


def _pdf(data: bytes, source: str) -> _Read:
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DocumentUnreadable(source=source, reason="it is encrypted")
        if len(reader.pages) > MAX_PDF_PAGES:
            raise DocumentUnreadable(source=source, reason=f"it has over {MAX_PDF_PAGES} pages")
        title = (reader.metadata.title or "") if reader.metadata is not None else ""
        pages = [page.extract_text() for page in reader.pages]
    except DocumentUnreadable:
        raise
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        # for malformed files pypdf raises whatever error its parsing runs into
        reason = f"it is not a readable PDF ({type(error).__name__}: {error})"
        raise DocumentUnreadable(source=source, reason=reason) from error
    parts: list[str] = []
    sections: list[Section] = []
    offset = 0
    for number, page in enumerate(pages, 1):
        text = _NOT_STORED.sub(" ", page).strip()
        if text:
            sections.append(Section(offset, (f"page {number}",)))
            parts.append(text)
            offset += len(text) + 2
    return "\n\n".join(parts), _NOT_STORED.sub(" ", title).strip(), sections


# ---- sections -------------------------------------------------------------------------------


def _first_heading(headings: list[tuple[int, int, str]]) -> str:
    return next((heading for _, _, heading in headings if heading), "")


def _sections(headings: list[tuple[int, int, str]]) -> list[Section]:
    path: list[tuple[int, str]] = []
    sections = []
    for start, level, heading in headings:
        path = [(above, name) for above, name in path if above < level]
        path.append((level, heading[:MAX_HEADING_CHARS]))
        sections.append(Section(start, tuple(name for _, name in path if name)))
    return sections


_READERS: Final[dict[str, Callable[[bytes, str], _Read]]] = {
    "text/markdown": _markdown,
    "text/plain": _plain,
    "text/html": _html,
    "application/pdf": _pdf,
}
