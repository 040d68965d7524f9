"""Turns a request's body into a call, and chooses the format of its answer."""

import os
from collections.abc import Mapping
from typing import Any, cast

from hocket.gateway.api.http import identity
from hocket.gateway.api.http.answers import Answers, CompletionAnswers
from hocket.gateway.api.http.responses_answers import ResponseAnswers
from hocket.gateway.core.calls.request_content import most_tokens
from hocket.gateway.core.config.access import Key
from hocket.gateway.core.protocols.openai_api import CHAT
from hocket.gateway.core.protocols.responses.answer import ResponseHead
from hocket.gateway.core.protocols.responses.request import RESPONSES, chat_body
from hocket.kit.process import clock
from hocket.schemas.messages import NO_REQUIREMENTS, Attribution, CallRequest, OpenAIBody
from hocket.schemas.openai.answers import ResponseOptions

CALL_ID_BYTES = 12


def called(
    path: str, body: dict[str, Any], headers: Mapping[str, str], key: Key | None, *, stream: bool
) -> tuple[CallRequest, Answers]:
    """Return the call for a validated body, and the renderer of its answer; raise InvalidInput for
    a bad header.

    A response (Responses API) is made from a chat completion.
    """
    if path == RESPONSES:
        who = identity.attribution(headers, key, body)  # a chat completion has no metadata of it
        call = _call_request(CHAT, chat_body(body), headers, key, who, stream=stream)
        return call, ResponseAnswers(ResponseHead(call.call_id, body, _now_s()))
    who = identity.attribution(headers, key, body)
    call = _call_request(path, body, headers, key, who, stream=stream)
    given = body.get("stream_options")
    options = given if isinstance(given, dict) else {}
    return call, CompletionAnswers(
        ResponseOptions(
            path,
            call.model,
            call.call_id,
            _now_s(),
            wants_usage=options.get("include_usage") is True,
            packed=body.get("encoding_format") == "base64",
        )
    )


def _call_request(
    path: str,
    body: dict[str, Any],
    headers: Mapping[str, str],
    key: Key | None,
    who: Attribution,
    *,
    stream: bool,
) -> CallRequest:
    return CallRequest(
        call_id=identity.call_id(headers, who.tenant, key, os.urandom(CALL_ID_BYTES).hex()),
        model=body["model"],
        openai=OpenAIBody(path=cast(Any, path), body=body),
        max_tokens=most_tokens(body),
        deadline_at_ms=clock.now_ms() + identity.timeout_ms(headers, stream=stream),
        priority=identity.priority(headers),
        budget_usd=identity.budget_usd(headers),
        requires=identity.required(headers, NO_REQUIREMENTS),
        attribution=who,
    )


def _now_s() -> int:
    return int(clock.now_ms() / 1000)
