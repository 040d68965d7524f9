"""The hook `presidio`, with an analyzer that takes no long texts, as spaCy's does not."""

from dataclasses import dataclass
from typing import Any

import pytest

from hocket.gateway.hooks import presidio
from hocket.gateway.hooks.presidio import PIECE_CHARS, PresidioHook
from hocket.schemas.messages import Attribution, CallRequest, ChatMessage


@dataclass
class Found:
    start: int
    end: int
    entity_type: str = "PERSON"
    score: float = 1.0


class Analyzer:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def get_supported_entities(self, language: str) -> list[str]:
        return ["PERSON"]

    def analyze(self, text: str, **_: Any) -> list[Found]:
        assert len(text) <= PIECE_CHARS
        self.texts.append(text)
        at = text.find("Bob")
        return [] if at < 0 else [Found(at, at + 3)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Bob", 1),
        ("x" * PIECE_CHARS, 1),
        ("x" * (PIECE_CHARS - 3) + "\n a Bob", 2),
        ("x" * (PIECE_CHARS - 2) + " Bob", 2),
        ("\n" + "x" * PIECE_CHARS + " Bob", 2),
        ("x" * PIECE_CHARS * 3, 3),
        ("word " * 300_000 + "Bob", 16),
    ],
    ids=["short", "full", "line", "space", "line-at-the-beginning", "no-border", "long"],
)
async def test_a_long_text_is_analyzed_in_pieces(
    text: str, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyzer = Analyzer()
    monkeypatch.setattr(presidio, "_analyzer", lambda *_: analyzer)
    asked = CallRequest(
        call_id="c",
        model="m",
        messages=(ChatMessage(role="user", content=text),),
        deadline_at_ms=0,
        attribution=Attribution(tenant="acme"),
    )
    changed = await PresidioHook({}).before(asked)
    assert changed.request.messages[0].content == text.replace("Bob", "<PERSON_1>")
    assert len(analyzer.texts) == pieces
