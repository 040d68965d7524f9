"""Which forms are accepted: those that a page of the console sent, of people who may."""

import io
from typing import Any

import pytest

from support.administration.console_rig import FORM, asked_bare, cookie_of, posted
from support.rest_rig import Rest, bearer

FORMS: dict[str, str] = {
    "/new/schedule": "name=a&task.pipeline=greet&cron=0+2+*+*+*",
    "/schedules/nightly/edit": "revision=1&task.pipeline=greet&cron=0+2+*+*+*",
    "/new/webhook": "name=a&url=https://hooks.example.com&events=run.failed",
    "/new/key": "name=a&role=viewer",
}
OFFERS = {
    "/schedules": "/console/new/schedule",
    "/schedules/nightly": "/console/schedules/nightly/edit",
    "/webhooks": "/console/new/webhook",
    "/system?view=keys": "/console/new/key",
}
MAY = {
    "viewer": (),
    "developer": ("/new/schedule", "/schedules/nightly/edit", "/new/webhook"),
    "operator": ("/new/schedule", "/new/webhook"),
    "auditor": (),
    "admin": tuple(FORMS),
}


async def _rows(rest: Rest) -> list[Any]:
    tables = ("schedule", "webhook", "api_key", "audit")
    return [
        [tuple(row) for row in await rest.pool.fetch(f"SELECT * FROM hocket.{table} ORDER BY 1")]
        for table in tables
    ]


async def _sent(rest: Rest, path: str, body: str, headers: dict[str, str]) -> tuple[int, str]:
    sent = {**FORM, **headers}
    answer = await asked_bare(rest, "POST", f"/console{path}", data=body.encode(), headers=sent)
    return answer.status, answer.body


async def test_a_form_that_another_page_may_have_sent_does_nothing(rest: Rest) -> None:
    mine = await cookie_of(rest, await rest.make_key("admin"))
    before = await _rows(rest)
    for path, body in FORMS.items():
        for headers, status in (
            ({}, 403),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": rest.url.replace("127.0.0.1", "localhost")}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "none"}, 403),
            ({"Origin": rest.url, "Content-Type": "text/plain"}, 415),
            ({"Origin": rest.url, "Content-Type": "multipart/form-data; boundary=x"}, 415),
            ({"Origin": rest.url, "Content-Type": "application/json"}, 415),
            ({"Origin": rest.url, "Host": "evil.example"}, 421),
        ):
            told = await _sent(rest, path, body, {**mine, **headers})
            assert told[0] == status, (path, headers, told)
            assert "<h1>" in told[1], "people are shown a page"
        bare = await _sent(rest, path, body, {"Origin": rest.url, "Accept": "text/html"})
        assert bare[0] == 303, "who is not signed in is sent to the sign-in page"
    assert await _rows(rest) == before


async def test_no_form_is_accepted_where_json_is_sent(rest: Rest) -> None:
    headers = {**FORM, "Origin": rest.url, **bearer(rest.key)}
    for method, path in (
        ("PUT", "/v1/schedules/a"), ("PUT", "/v1/webhooks/a"), ("POST", "/v1/keys"),
        ("POST", "/console/sign-in"), ("POST", "/console/playground/calls"),
    ):  # fmt: skip
        answer = await asked_bare(rest, method, path, data=b"name=a", headers=headers)
        assert answer.status == 415, path


@pytest.mark.parametrize("how", ["Origin", "Sec-Fetch-Site"])
async def test_a_browser_says_in_one_of_two_ways_which_page_sent_a_form(
    rest: Rest, how: str
) -> None:
    mine = await cookie_of(rest, await rest.make_key("admin"))
    said = {"Origin": rest.url} if how == "Origin" else {"Sec-Fetch-Site": "same-origin"}
    for path, body in FORMS.items():
        status, page = await _sent(rest, path, body, {**mine, **said})
        assert status in (201, 303), (path, page)


@pytest.mark.parametrize("role", sorted(MAY))
async def test_who_may_not_sees_no_form_and_gets_a_page_that_says_so(rest: Rest, role: str) -> None:
    theirs = await cookie_of(rest, await rest.make_key(role))
    before = await _rows(rest)
    for path in FORMS:
        if path in MAY[role]:
            continue
        shown = await asked_bare(rest, "GET", f"/console{path}", headers=theirs)
        sent = await posted(rest, path, {"name": "a"}, theirs)
        for answer in (shown, sent):
            assert answer.status == 403, path
            assert "has no permission" in answer.body
            assert "text/html" in answer.headers["Content-Type"]
    assert await _rows(rest) == before
    for path, link in OFFERS.items():
        page = await asked_bare(rest, "GET", f"/console{path}", headers=theirs)
        offered = f'href="{link}"' in page.body
        assert offered is (link.removeprefix("/console") in MAY[role]), (role, path)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("name=a&odd=1", "it has no field <code>odd</code>"),
        ("name=%ff", "it is not UTF-8"),
        ("name=\u00e9", "it is not UTF-8"),
        ("&".join(["name=a"] * 501), "it has more than 500 fields"),
        ("name=a", "it does not say which revision it changes"),
        ("name=a&revision=-1", "it does not say which revision it changes"),
    ],
)
async def test_a_form_that_no_page_sends_is_refused_with_a_page(
    rest: Rest, body: str, reason: str
) -> None:
    mine = await cookie_of(rest, await rest.make_key("developer"))
    status, page = await _sent(rest, "/schedules/nightly/edit", body, {**mine, "Origin": rest.url})

    assert status == 422
    assert f"The form cannot be read: {reason}." in page


async def test_a_form_that_is_too_large_is_refused_with_a_page(rest: Rest) -> None:
    mine = await cookie_of(rest, await rest.make_key("developer"))
    body = io.BytesIO(b"task.input=" + b"x" * 1_048_577)
    headers = {**FORM, **mine, "Origin": rest.url}
    answer = await asked_bare(rest, "POST", "/console/new/schedule", data=body, headers=headers)

    assert answer.status == 413
    assert "<h1>" in answer.body
