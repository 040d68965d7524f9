"""What the API says about a value that is not valid: no regular expression and none of the words of the
validation library, but what it may be."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import httpx
import pytest
from fastapi import FastAPI, Query
from pydantic import BaseModel, Field

from hocket.admin.requests.errors import add_error_handlers
from hocket.admin.requests.parameters import WHOLE, Day, Switch
from hocket.admin.runs.lookup import RunId
from hocket.cli.client_code import described
from hocket.schemas.administration.webhooks import Url
from hocket.schemas.checks.text_forms import form_of, is_worded
from hocket.schemas.labels import Labels, header_pattern
from hocket.schemas.rest import Key, Token

JARGON = re.compile(r"pattern|should|Input|String|\^|\\|_type|_error")


class Body(BaseModel):
    name: Token
    key: Key | None = None
    labels: Labels = Field(default_factory=dict)
    hook: Url | None = None
    parts: tuple["Body", ...] = Field((), max_length=1)


def app() -> FastAPI:
    made = FastAPI()
    add_error_handlers(made)

    @made.get("/runs/{run_id}")
    def show(
        run_id: RunId,
        level: Annotated[Literal["debug", "info"] | None, Query()] = None,
        limit: Annotated[Annotated[int, Field(ge=1, le=500), WHOLE], Query()] = 1,
        day: Annotated[Day | None, Query()] = None,
        wanted: Annotated[Switch, Query()] = False,
    ) -> None: ...

    @made.post("/bodies")
    def post(body: Body) -> None: ...

    return made


async def said(method: str, place: str, body: Any = None) -> tuple[str, str]:
    """Return the field and the message of a refusal."""
    transport = httpx.ASGITransport(app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.request(method, place, json=body)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["detail"].endswith(problem["cure"])
    return problem["field"], problem["detail"]


async def test_what_is_no_run_id_is_told_what_one_looks_like_and_where_to_find_it() -> None:
    field, message = await said("GET", "/runs/my-run")
    assert field == "run_id"
    assert message == (
        "`run_id` is not valid: it is not a run ID. A run ID is `r` and 24 digits or letters from a "
        "to f, such as `r0123456789abcdef01234567`. `hocket runs list` and `GET /v1/runs` show those "
        "of your runs."
    )


RUN = "/runs/r0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("?level=x", "`level` is not valid: it is not one of its values. Use `debug` or `info`."),
        ("?limit=0", "`limit` is not valid: it is out of bounds. Use 1 or more."),
        ("?day=2026-02-30", "`day` is not valid: there is no such date. Write one such as"),
        ("?wanted=yes", "`wanted` is not valid: it is neither `true` nor `false`."),
    ],
)
async def test_parameters_are_told_what_they_may_be(place: str, message: str) -> None:
    _, told = await said("GET", RUN + place)
    assert told.startswith(message)
    assert JARGON.search(told) is None


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ([], "(body)", "it is not a JSON object"),
        ({"name": "a.b"}, "name", "it is not a name. Use letters, digits, `_` and `-`"),
        ({"name": 1}, "name", "it is a number, not text"),
        ({"name": "a", "key": "a b"}, "key", "it has a space"),
        ({"name": "a", "key": ""}, "key", "it has 0 characters. Use at least 1."),
        ({"name": "a", "hook": "x"}, "hook", "it is not a web address. Write an address such as"),
        ({"name": "a", "labels": {" ": "b"}}, "labels. ", "it is not the name of a label"),
        ({"name": "a", "parts": ["b"]}, "parts.0", "it is text, not a mapping"),
        ({"name": "a", "parts": {}}, "parts", "it is a mapping, not a list"),
    ],
)
async def test_bodies_are_told_what_they_may_be(body: Any, field: str, reason: str) -> None:
    found, told = await said("POST", "/bodies", body)
    assert found == field
    assert reason in told
    assert JARGON.search(told) is None


def patterns(value: Any) -> Iterator[str]:
    """Yield the patterns of a JSON Schema and all that is inside it."""
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield value["pattern"]
        yield from (one for inner in value.values() for one in patterns(inner))
        yield from value.get("patternProperties", ())
    elif isinstance(value, list):
        yield from (one for inner in value for one in patterns(inner))


def test_every_text_that_a_request_may_have_wrong_has_words() -> None:
    document = described()
    requests = [
        operation.get(part)
        for path in document["paths"].values()
        for operation in path.values()
        for part in ("parameters", "requestBody")
    ]
    used = {*patterns(requests), *patterns(document["components"]["schemas"])}
    unchecked = {header_pattern(), r"^-?[0-9]+(\.[0-9]+)?$"}
    unworded = {one for one in used - unchecked if not is_worded(one)}
    assert len(used) > 20
    assert unworded == set()


def test_other_patterns_are_not_shown_either() -> None:
    assert JARGON.search(" ".join(form_of(r"^\d+$"))) is None
