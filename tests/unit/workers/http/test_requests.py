"""What an `http` node sends: a value is one part of the path, one value of the query, one header."""

from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.workers.http.errors import HttpServiceInvalid, HttpServiceUnknown
from hocket.workers.http.requests import MAX_REQUEST_BYTES, HttpRequest, request_of
from hocket.workers.http.services import Services

SECTION = {
    "crm": {
        "url": "https://crm.example.com/api/",
        "headers": {"Authorization": "Bearer os.environ/CRM_TOKEN"},
        "methods": ["GET", "POST"],
    }
}
SERVICE = Services(SECTION, {"CRM_TOKEN": "s3cret"}).get("crm", "t")


def made(config: dict[str, Any], step_input: Any = None) -> HttpRequest:
    return request_of({"service": "crm", **config}, step_input, SERVICE)


def test_a_request_is_below_the_url_and_carries_the_secret() -> None:
    request = made(
        {
            "path": "/customers/:id/orders",
            "params": {"id": "{{ input.id }}"},
            "query": {"state": ["open", "{{ input.state }}"], "page": 2, "all": True, "no": None},
            "headers": {"X-Trace": "{{ input.id }}"},
        },
        {"id": "a b", "state": "x&y"},
    )
    assert request.url == (
        "https://crm.example.com/api/customers/a%20b/orders?state=open&state=x%26y&page=2&all=true"
    )
    assert (request.method, request.body) == ("GET", None)
    assert dict(request.headers) == {"x-trace": "a b", "authorization": "Bearer s3cret"}


def test_a_body_is_json_and_posted() -> None:
    request = made({"body": {"name": "{{ input.name }}", "n": 1}}, {"name": "Ä"})
    assert (request.method, request.body) == ("POST", '{"name":"Ä","n":1}'.encode())
    assert request.headers["content-type"] == "application/json"


def test_a_text_with_a_content_type_of_its_own_is_sent_as_it_is() -> None:
    request = made({"body": "{{ input }}", "headers": {"content-type": "text/csv"}}, "a,b")
    assert request.body == b"a,b"


@pytest.mark.parametrize(
    "value", ["..admin", "a/b..", "a?b=c", "a#b", "a\\b", "%2e%2ea", "a\r\nb", "é/x"]
)
def test_no_value_leaves_its_part_of_the_path(value: str) -> None:
    config = {"path": "/customers/:id/orders", "params": {"id": "{{ input }}"}}
    path = made(config, value).url.removeprefix("https://crm.example.com/api/customers/")
    part, slash, rest = path.partition("/")
    assert (slash, rest) == ("/", "orders")
    assert not set(part) & set("?#\\/\r\n")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"path": "/a/../b"}, "path"),
        ({"path": "/:id", "params": {"id": ".."}}, "path"),
        ({"path": "/:id/a", "params": {"id": "."}}, "path"),
        ({"path": "/:id/a", "params": {"id": "../admin"}}, "path"),
        ({"path": "/:id/a", "params": {"id": "x\\..\\y"}}, "path"),
        ({"path": "/:id/a", "params": {"id": "%2e%2e"}}, "path"),
        ({"path": "/:id"}, "params"),
        ({"path": "/:id", "params": {"id": ""}}, "params.id"),
        ({"path": "/:id", "params": {"id": "{{ input }}"}}, "params.id"),
        ({"path": "/:id", "params": {"id": "x" * 8_193}}, "params.id"),
        ({"query": {"q": {"a": 1}}}, "query.q"),
        ({"query": {str(n): "x" * 8_000 for n in range(3)}}, "query"),
        ({"method": "DELETE"}, "method"),
        ({"headers": {"Authorization": "Bearer mine"}}, "headers.Authorization"),
        ({"headers": {"Host": "other"}}, "headers.Host"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers.Transfer-Encoding"),
        ({"headers": {"X-HTTP-Method-Override": "DELETE"}}, "headers.X-HTTP-Method-Override"),
        ({"headers": {"x-original-url": "/admin"}}, "headers.x-original-url"),
        ({"headers": {"a b": "x"}}, "headers.a b"),
        ({"headers": {"x": "a\r\nHost: b"}}, "headers.x"),
        ({"headers": {"x": "é"}}, "headers.x"),
        ({"body": "x" * MAX_REQUEST_BYTES}, "body"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_field(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        made(config, {"an": "object"})
    assert refused.value.fields["field"] == field


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({}, "url"),
        ("ftp://host/", "url"),
        ("https://", "url"),
        ("https://user:word@host", "url"),
        ("https://host/?a=b", "url"),
        ("https://host/#a", "url"),
        ("https://[::1", "url"),
        ("http://127.0.0.1:80", "url"),
        ("http://[::ffff:10.0.0.1]", "url"),
        ({"url": "https://host", "headers": {"host": "x"}}, "headers"),
        ({"url": "https://host", "headers": {"a": "os.environ/MISSING"}}, "headers.a"),
        ({"url": "https://host", "headers": {"a": "x\ny"}}, "headers.a"),
        ({"url": "https://host", "methods": ["BREW"]}, "methods.0"),
        ({"url": "https://host", "max_bytes": 10**9}, "max_bytes"),
        ({"url": "https://host", "other": 1}, "other"),
    ],
)
def test_a_service_that_cannot_be_asked_is_refused_at_the_start(entry: Any, field: str) -> None:
    with pytest.raises(HttpServiceInvalid) as refused:
        Services({"it": entry}, {})
    assert refused.value.fields["field"] == field


def test_a_service_is_its_tenants_own() -> None:
    services = Services({"it": {"url": "https://host", "tenants": ["a"]}}, {})
    assert services.get("it", "a").name == "it"
    with pytest.raises(HttpServiceUnknown):
        services.get("it", "b")
