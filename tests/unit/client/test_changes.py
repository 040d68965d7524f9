"""What changes a run or a pipeline has its effect once, even if an answer is lost."""

from typing import Any

import httpx2
import pytest

from hocket.client import ApiUnreachable, AsyncHocket, Hocket, RequestRefused
from support.shared.scripted_api import Answer, refusal

URL = "http://hocket.example"
LOST = httpx2.ReadError("connection reset")


class Cancelling:
    """An API that answers as told to the first cancellation of a run; by default, its answer is lost."""

    def __init__(
        self,
        first: Answer | Exception | None = LOST,
        *,
        ends_as: str = "cancelled",
        code: str = "run_not_open",
    ) -> None:
        self.asked = 0
        self._first = first
        self._ends_as = ends_as
        self._code = code

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        first = self._first if self.asked == 1 else None
        if isinstance(first, Exception):
            raise first
        ended = refusal(409, self._code, "It has ended.", {"status": self._ends_as})
        status, body = ended if first is None else first
        return httpx2.Response(status, content=body)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.client.requests.FIRST_PAUSE_S", 0.0)


def client(api: Any) -> Hocket:
    return Hocket(URL, key="k", transport=httpx2.MockTransport(api))


async def test_a_run_that_was_cancelled_by_a_request_whose_answer_was_lost_is_no_error() -> None:
    sync_api, api = Cancelling(), Cancelling()
    with client(sync_api) as hocket:
        assert hocket.runs.cancel("r1").run_id == "r1"
    async with AsyncHocket(URL, key="k", transport=httpx2.MockTransport(api)) as hocket_too:
        sent = await hocket_too.runs.cancel("r1")
    assert (sent.run_id, sent.log_seq) == ("r1", 0)
    assert sync_api.asked == api.asked == 2


@pytest.mark.parametrize(
    "api",
    [
        Cancelling(ends_as="succeeded"),
        Cancelling(code="run_unknown"),
        Cancelling(None),
        Cancelling(refusal(429, "rate_limited", "Too many requests.")),
        Cancelling(httpx2.ConnectError("refused")),
        Cancelling(httpx2.PoolTimeout("no connection")),
    ],
    ids=[
        "it ended otherwise",
        "it is not known",
        "it had been cancelled",
        "the first was refused",
        "the first did not reach the API",
        "the first was not sent",
    ],
)
def test_a_run_that_was_not_cancelled_by_an_earlier_request_is_told(api: Cancelling) -> None:
    with client(api) as hocket, pytest.raises(RequestRefused, match="It has ended"):
        hocket.runs.cancel("r1")


@pytest.mark.parametrize(
    "first",
    [(502, b"Bad gateway"), (504, b"Timeout"), httpx2.ReadTimeout("no answer")],
    ids=["bad gateway", "gateway timeout", "no answer"],
)
def test_a_run_may_have_been_cancelled_by_a_request_without_an_answer(
    first: Answer | Exception,
) -> None:
    with client(Cancelling(first)) as hocket:
        assert hocket.runs.cancel("r1").log_seq == 0


def test_a_pipeline_is_not_applied_again_over_the_version_of_another() -> None:
    asked: list[str] = []

    def lost(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        raise httpx2.ReadError("connection reset")

    with client(lost) as hocket, pytest.raises(ApiUnreachable):
        hocket.pipelines.apply({"pipeline": "p", "nodes": {}})
    assert asked == ["/v1/pipelines"]
