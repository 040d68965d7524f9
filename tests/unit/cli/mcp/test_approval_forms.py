"""A person's decision over a form: what becomes of it, and of the run, if something is in the way."""

from typing import Any, Literal

import pytest
from mcp import Client
from mcp_types import CallToolResult, ElicitResult

from hocket.cli.mcp.server import McpPlatform
from hocket.cli.remote.api import Api
from support.shared.scripted_api import Answer, as_json, refusal, scripted_api

RUN_ID = "r" + "0" * 24
RUN = {"run_id": RUN_ID, "pipeline": "asks", "status": "running"}
ENDED = {**RUN, "status": "succeeded", "output": "sent", "finished_at": "now"}
TOO_MANY = "Too many requests."


class Asks:
    """A platform with a run that waits for an approval. After the decision, the next `refuses` requests
    are too many, and so is the decision if `takes` is false."""

    def __init__(self, *, refuses: int = 0, takes: bool = True) -> None:
        self.signals: list[Any] = []
        self.forms: list[str] = []
        self._refuses = refuses
        self._takes = takes

    def answer(self, asked: str, body: Any) -> Answer:
        if asked == "POST /v1/runs":
            return as_json(202, RUN)
        if asked.startswith("GET /v1/pipelines"):
            return as_json(200, {"pipelines": []})
        if asked.endswith("/signals"):
            if not self._takes:
                return refusal(429, "too_many_requests", TOO_MANY)
            self.signals.append(body)
            return as_json(202, {})
        if self.signals and self._refuses:
            self._refuses -= 1
            return refusal(429, "too_many_requests", TOO_MANY)
        if asked.startswith("GET /v1/approvals"):
            return as_json(200, {"approvals": [{"step": "look", "prompt": "Send it?"}]})
        return as_json(200, ENDED if self.signals else RUN)

    async def called(
        self, action: Literal["accept", "decline", "cancel"], wait_ms: float = 20_000
    ) -> CallToolResult:
        """Call the tool, with a person who does this with each form."""

        async def decide(_context: Any, params: Any) -> ElicitResult:
            self.forms.append(params.message)
            content: Any = {"approved": True} if action == "accept" else None
            return ElicitResult(action=action, content=content)

        with scripted_api(self.answer) as api:
            platform = McpPlatform(lambda _key: Api(api.url), (), wait_ms)
            server = platform.server("1")
            async with Client(server, elicitation_callback=decide) as client:
                return await client.call_tool("asks", {})


def text_of(result: CallToolResult) -> str:
    (told,) = result.content
    assert told.type == "text"
    return told.text


async def test_a_form_that_is_dismissed_is_not_shown_again() -> None:
    asks = Asks()
    result = await asks.called("cancel")
    assert (asks.forms, asks.signals) == (["Send it?"], [])
    assert not result.is_error
    assert result.structured_content == {
        "run_id": RUN_ID,
        "status": "running",
        "approvals": [{"step": "look", "prompt": "Send it?"}],
    }
    assert "hocket_answer_approval" in text_of(result)


@pytest.mark.parametrize(("action", "is_approved"), [("accept", True), ("decline", False)])
async def test_too_many_requests_after_a_decision_do_not_end_the_wait(
    action: Any, is_approved: bool
) -> None:
    asks = Asks(refuses=2)
    result = await asks.called(action)
    assert result.structured_content == {"run_id": RUN_ID, "status": "succeeded", "output": "sent"}
    assert [one["payload"]["approved"] for one in asks.signals] == [is_approved]


async def test_a_run_that_cannot_be_read_after_a_decision_is_named() -> None:
    asks = Asks(refuses=1_000)
    result = await asks.called("accept", wait_ms=300)
    assert result.structured_content is not None
    assert (result.is_error, result.structured_content["run_id"]) == (False, RUN_ID)
    assert RUN_ID in text_of(result)
    assert TOO_MANY in text_of(result)


async def test_a_decision_that_cannot_be_sent_is_told_with_its_run() -> None:
    asks = Asks(takes=False)
    result = await asks.called("accept")
    assert len(asks.forms) == 1
    assert result.structured_content is not None
    assert (result.is_error, result.structured_content["run_id"]) == (True, RUN_ID)
    assert TOO_MANY in text_of(result)
    assert RUN_ID in text_of(result)
