"""Makes untrusted text safe for a terminal.

Names, outputs and errors are other people's data. Characters that a terminal would act upon (escape
sequences, and all other control characters), and those that reorder or hide text (direction marks,
invisible separators), are shown as escapes: `\\x1b`, `\\u202e`. Line ends and tabs are kept.
"""

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return the text with everything that would act upon a terminal escaped."""
    return UNSAFE.sub(_escape, text)


def visible_json(text: str) -> str:
    """Return JSON text of the same value with everything that would act upon a terminal escaped."""
    return UNSAFE.sub(_json_escape, text)


def visible_yaml(document: Any) -> str:
    """Return a pipeline or another document as YAML of the same value, with everything that would act
    upon a terminal escaped."""
    import yaml

    from hocket.schemas.pipeline.document import DocumentDumper

    class Dumper(DocumentDumper):
        """Double-quotes what has to be escaped: elsewhere, YAML knows no escapes."""

    def quoted(dumper: DocumentDumper, text: str) -> yaml.ScalarNode:
        style = '"' if UNSAFE.search(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, quoted)
    return visible(
        yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    )


class SafeConsole(Console):
    """A console that shows data as it is: brackets are no markup, and `:name:` is no emoji. Nothing in
    it acts on the terminal, but rich's own control sequences (colours) do."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})  # type: ignore[arg-type]
        self.push_render_hook(_Hook())


class _Hook(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(renderable) for renderable in renderables]


class _Shown:
    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _safe(console.render(self._renderable, options))


def _safe(segments: Iterable[Segment]) -> Iterable[Segment]:
    for segment in segments:
        if segment.control is None and UNSAFE.search(segment.text):
            yield Segment(visible(segment.text), segment.style)
        else:
            yield segment


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
