"""What a request becomes as a call."""

from typing import Any

import pytest

from hocket.gateway.api.http.call_request import called

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "?"}]}


@pytest.mark.parametrize(
    ("path", "body"), [("chat/completions", CHAT), ("responses", {"input": "?"})]
)
def test_a_call_is_charged_to_what_the_metadata_of_its_body_says(
    path: str, body: dict[str, Any]
) -> None:
    asked = {"model": "writer", "metadata": {"team": "search"}, "user": "ada", **body}
    call, _ = called(path, asked, {}, None, stream=False)
    assert call.attribution.labels == {"team": "search", "user": "ada"}
