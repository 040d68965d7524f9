"""What people see in the console if a request is refused: a page, not a problem for programs."""

from typing import Any

import pytest

from support.administration.console_rig import PAGE, asked_bare, cookie_of
from support.rest_rig import Answer, Rest, bearer, running_rest

SIGN_OUT = 'data-act="out"'


def _check_page(answer: Answer, status: int, text: str, *, known: bool) -> None:
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert text in answer.body
    assert (SIGN_OUT in answer.body) is known


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/nothing", 404, "There is nothing at <code>/console/nothing</code>."),
        ("/runs?tenant=rival", 403, "Your key does not cover the tenant <code>rival</code>."),
        ("/runs?tenant=%3Cb%3E%0a", 403, "does not cover the tenant <code>&lt;b&gt;\\n</code>."),
        ("/playground", 403, "has no permission <code>models.call</code>"),
        ("/runs?odd=1", 422, "<code>odd</code> is not valid: there is no such query parameter."),
        ("/runs/nope", 404, "There is no run <code>nope</code>."),
        ("/assets/000000000000/console.js", 404, "There is nothing at"),
    ],
)
async def test_a_refused_page_says_why_and_offers_to_sign_out(
    rest: Rest, path: str, status: int, text: str
) -> None:
    viewer = await cookie_of(rest, await rest.make_key("viewer", "acme"))

    page = await asked_bare(rest, "GET", f"/console{path}", headers=viewer)
    data = await asked_bare(rest, "GET", f"/console{path}", headers={"Cookie": viewer["Cookie"]})

    _check_page(page, status, text, known="/assets/" not in path)
    assert data.status in (status, 422)
    assert data.headers["Content-Type"] == "application/problem+json"


async def test_links_of_a_refused_page_lead_out_of_the_refused_tenant(rest: Rest) -> None:
    viewer = await cookie_of(rest, await rest.make_key("viewer", "acme"))

    page = await asked_bare(rest, "GET", "/console/runs?tenant=rival", headers=viewer)

    assert '<a href="/console/runs">All runs</a>' in page.body
    assert "tenant=rival" not in page.body
    assert 'data-tenant="acme"' in page.body


async def test_a_key_that_may_do_nothing_here_can_sign_out_again(rest: Rest) -> None:
    narrow = await cookie_of(rest, await rest.make_key("viewer", "acme", scopes=frozenset()))

    page = await asked_bare(rest, "GET", "/console/runs", headers=narrow)

    _check_page(page, 403, "has no permission <code>runs.read</code>", known=True)
    assert "All runs" not in page.body


async def test_a_method_that_a_page_has_not_is_told_with_those_that_it_has(rest: Rest) -> None:
    viewer = await cookie_of(rest, await rest.make_key("viewer"))

    page = await asked_bare(rest, "POST", "/console/runs", headers=viewer)

    _check_page(page, 405, "<code>/console/runs</code> does not accept POST.", known=True)
    assert page.headers["Allow"] == "GET"


async def test_a_refused_page_says_when_to_try_again(rest: Rest) -> None:
    key = await rest.make_key("viewer", "default", requests_per_s=0.1)
    headers = {**bearer(key), **PAGE}

    answers = [await asked_bare(rest, "GET", "/console/runs", headers=headers) for _ in range(3)]

    late = next(answer for answer in answers if answer.status == 429)
    _check_page(late, 429, "That did not work", known=False)
    assert int(late.headers["Retry-After"]) > 0


async def test_programs_and_other_paths_get_problems(rest: Rest) -> None:
    for path, headers in (
        ("/console/nothing", {}),
        ("/console/nothing", {"Accept": "*/*"}),
        ("/consoles", PAGE),
        ("/v1/nothing", PAGE),
    ):
        answer = await rest.get(path, headers=headers)
        assert answer.status == 404, path
        assert answer.headers["Content-Type"] == "application/problem+json", path


FOLLOWED = {
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}


async def test_who_follows_a_link_from_another_site_arrives_with_the_session(rest: Rest) -> None:
    """Browsers withhold the cookie from the first request, and send it with the second one."""
    mine = await cookie_of(rest, await rest.make_key("viewer"))
    path = "/console/runs?pipeline=a%20b&error=%22%3E%3Cb%3E"

    first = await asked_bare(rest, "GET", path, headers={**PAGE, **FOLLOWED})
    own = {
        "Sec-Fetch-Site": "same-origin",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    second = await asked_bare(rest, "GET", path, headers={**mine, **own})
    stranger = await asked_bare(rest, "GET", path, headers={**PAGE, **own})

    escaped = path.replace("&", "&amp;")
    assert first.status == 200
    assert f'<meta http-equiv="refresh" content="0; url={escaped}">' in first.body
    assert "default-src 'none'" in first.headers["Content-Security-Policy"]
    assert first.headers["Cache-Control"] == "no-store"
    assert "<script" not in first.body
    assert (second.status, SIGN_OUT in second.body) == (200, True)
    assert stranger.status == 303
    assert stranger.headers["Location"].startswith("/console/sign-in?back=%2Fconsole%2Fruns%3F")


async def test_a_link_from_another_site_leads_nowhere_else(rest: Rest) -> None:
    for path in (
        "/console//evil.example",
        "/console/x%0ay%22%3E",
        "/console/runs?%ff=%22%3E%27;url=//evil",
    ):
        answer = await asked_bare(rest, "GET", path, headers={**PAGE, **FOLLOWED})
        address = answer.body.partition('content="0; url=')[2].partition('"')[0]
        assert answer.status == 200
        assert address.startswith("/console/"), path
        assert not set(address) & set("<>\n "), path


@pytest.mark.parametrize(
    ("method", "path", "changed", "status"),
    [
        ("POST", "/console/playground/calls", {}, 403),
        ("POST", "/console/sign-out-everywhere", {}, 403),
        ("HEAD", "/console/runs", {}, 403),
        ("GET", "/console/runs", {"Sec-Fetch-Mode": "no-cors"}, 403),
        ("GET", "/console/runs", {"Sec-Fetch-Dest": "iframe"}, 403),
        ("GET", "/console/runs", {"Sec-Fetch-Site": "same-site"}, 303),
        ("GET", "/console/runs", {"Sec-Fetch-Site": "none"}, 303),
        ("GET", "/console/runs", {"Cookie": "hocket_session=ended"}, 303),
        ("GET", "/console/runs", {"Accept": "*/*"}, 401),
        ("GET", "/v1/runs", {}, 401),
    ],
)
async def test_only_links_to_pages_are_opened_a_second_time(
    rest: Rest, method: str, path: str, changed: dict[str, str], status: int
) -> None:
    headers: dict[str, Any] = {**PAGE, **FOLLOWED, **changed}
    answer = await asked_bare(rest, method, path, headers=headers)
    assert answer.status == status
    assert "http-equiv" not in answer.body


async def test_a_link_is_followed_below_the_path_of_a_proxy(
    nats_url: str, database_url: str
) -> None:
    async with running_rest(nats_url, database_url, root_path="/hocket") as rest:
        headers = {**PAGE, **FOLLOWED}
        answer = await asked_bare(
            rest, "GET", "/hocket/console/runs?status=failed", headers=headers
        )
    assert 'content="0; url=/hocket/console/runs?status=failed"' in answer.body
