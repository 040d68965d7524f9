"""The hook `presidio`: personal data found by Microsoft Presidio's analyzer, including names and
places.

It needs `presidio-analyzer` and a spaCy model in the gateway's environment; they are imported when
the hook is built. Options: `language` (default: en), `entities` (default: all that its recognizers
know), `score` (the minimum confidence; default: 0.5), `spacy_model`, `unmask` (default: true).
Analysis runs in a thread, and a long text is analyzed in pieces: spaCy takes a lot of memory for one,
and refuses more than 1,000,000 characters.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from hocket.gateway.core.calls.pii import Masks, Pattern
from hocket.gateway.core.errors import RoutingInvalid
from hocket.gateway.hooks.pii import changed, check_options, flag_of, in_thread, refused
from hocket.gateway.hooks.protocol import Changed
from hocket.schemas.messages import CallRequest

USUAL_SCORE = 0.5
PIECE_CHARS = 100_000
"""The most characters analyzed at a time."""
USUAL_MODEL = "en_core_web_sm"
_OPTIONS = {"language", "entities", "score", "spacy_model", "unmask"}
_NOTHING = re.compile(r"(?!)")


class PresidioHook:
    """Masks personal data found by Presidio; raises RoutingInvalid if Presidio is not installed."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        check_options(options, _OPTIONS)
        self._language = str(options.get("language", "en"))
        self._entities = options.get("entities")
        if self._entities is not None and not isinstance(self._entities, list):
            raise refused("entities", "it is not a list", "Write for example [PERSON, LOCATION].")
        self._score = float(options.get("score", USUAL_SCORE))
        self._unmask = flag_of(options, "unmask")
        self._analyzer = _analyzer(self._language, str(options.get("spacy_model", USUAL_MODEL)))

    async def before(self, request: CallRequest) -> Changed:
        """Return the call with placeholders for personal data."""
        kinds = [Pattern(kind, _NOTHING) for kind in self._kinds()]
        masked, masks = await in_thread(request, kinds, lambda one: partial(self._masked, one))
        return changed(masked, masks, unmask=self._unmask)

    def _kinds(self) -> list[str]:
        known = self._analyzer.get_supported_entities(language=self._language)
        return [str(kind) for kind in self._entities or known]

    def _masked(self, masks: Masks, text: str) -> str:
        return "".join(self._masked_piece(masks, piece) for piece in _pieces(text))

    def _masked_piece(self, masks: Masks, text: str) -> str:
        masks.check()
        if not text.strip():
            return text
        found = self._analyzer.analyze(
            text=text, language=self._language, entities=self._entities, score_threshold=self._score
        )
        surest = sorted(found, key=lambda one: (-one.score, one.start - one.end))
        taken: list[Any] = []
        for one in surest:
            if all(one.end <= other.start or one.start >= other.end for other in taken):
                taken.append(one)
        for one in sorted(taken, key=lambda one: -one.start):
            placeholder = masks.placeholder(one.entity_type, text[one.start : one.end])
            text = text[: one.start] + placeholder + text[one.end :]
        return text


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces, which end at the end of a line, otherwise at a space, if there is any."""
    begin = 0
    while len(text) - begin > PIECE_CHARS:
        most = begin + PIECE_CHARS
        end = text.rfind("\n", begin, most) + 1 or text.rfind(" ", begin, most) + 1 or most
        yield text[begin:end]
        begin = end
    yield text[begin:]


def _analyzer(language: str, model: str) -> Any:
    try:
        analyzer = import_module("presidio_analyzer")
        engines = import_module("presidio_analyzer.nlp_engine")
    except ImportError as error:
        raise RoutingInvalid(
            field="hooks: use",
            reason=f"`presidio` needs a package that is not installed ({error.name})",
            cure="Install `presidio-analyzer` and a spaCy model, or use `pii`.",
        ) from error
    configuration = {
        "nlp_engine_name": "spacy",
        "models": [{"lang_code": language, "model_name": model}],
    }
    engine = engines.NlpEngineProvider(nlp_configuration=configuration).create_engine()
    return analyzer.AnalyzerEngine(nlp_engine=engine, supported_languages=[language])
