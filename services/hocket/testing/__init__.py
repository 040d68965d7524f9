"""Plays pipelines in one process, by the coordinator's own rules and with the workers' own handlers, on
a simulated clock and with models that answer as the test says.

```python
from hocket.testing import Answer, Play


def test_an_order_is_looked_up_again() -> None:
    play = Play("order.yaml", worker=orders.worker)
    play.model("writer", Answer("Dear Ada, ...", cost_usd="0.002"))
    play.fails("lookup", error_class="unavailable")
    play.approves("review")
    played = play.run({"order": 7})
    assert played.status == "succeeded"
    assert played.steps["lookup"].attempts == 2
```

It starts no server and opens no connection; docs/how-to/test-pipelines.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.testing.errors import (
        AnswerNotRecorded,
        InvalidInput,
        NoAttempts,
        NotPlayable,
        PlayStuck,
        PromptChanged,
        ScriptExhausted,
        UnknownSignal,
        UnknownStep,
    )
    from hocket.testing.play import Play
    from hocket.testing.played import Played, PlayedStep
    from hocket.testing.recording import RecordingInvalid
    from hocket.testing.stand_ins.answers import Answer, ModelFails
    from hocket.testing.trace import PlayedCall

__all__ = [
    "Answer",
    "AnswerNotRecorded",
    "InvalidInput",
    "ModelFails",
    "NoAttempts",
    "NotPlayable",
    "Play",
    "PlayStuck",
    "Played",
    "PlayedCall",
    "PlayedStep",
    "PromptChanged",
    "RecordingInvalid",
    "ScriptExhausted",
    "UnknownSignal",
    "UnknownStep",
]
_MODULES = {
    "Answer": "stand_ins.answers",
    "AnswerNotRecorded": "errors",
    "InvalidInput": "errors",
    "ModelFails": "stand_ins.answers",
    "NoAttempts": "errors",
    "NotPlayable": "errors",
    "Play": "play",
    "PlayStuck": "errors",
    "Played": "played",
    "PlayedCall": "trace",
    "PlayedStep": "played",
    "PromptChanged": "errors",
    "RecordingInvalid": "recording",
    "ScriptExhausted": "errors",
    "UnknownSignal": "errors",
    "UnknownStep": "errors",
}


def __getattr__(name: str) -> Any:
    """Import lazily: pytest loads the plugin in every test run, but few of them play a pipeline."""
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(f"hocket.testing.{_MODULES[name]}"), name)
