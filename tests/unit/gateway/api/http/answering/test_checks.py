"""What a request must be before it is read."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from hocket.gateway.api.http.answering.checks import RequestChecks
from hocket.gateway.api.http.errors import QueryUnknown
from hocket.gateway.core.config.access import Key
from hocket.kit.process.limits.disk_space import DiskLow, DiskSpace
from hocket.kit.web_requests import (
    BodyEncoded,
    HostNotServed,
    MediaTypeUnsupported,
    OriginRefused,
    WebRules,
)
from hocket.schemas.access.keys import PermissionMissing

JSON = {"Content-Type": "application/json"}


def checks(folder: Path, min_free_bytes: int = 0) -> RequestChecks:
    return RequestChecks(WebRules(), DiskSpace(folder, min_free_bytes=min_free_bytes))


def asked(headers: dict[str, str], path: str = "/v1/chat/completions") -> Any:
    return make_mocked_request("POST", path, headers={"Host": "127.0.0.1", **headers})


@pytest.mark.parametrize(
    ("headers", "path", "refused"),
    [
        ({"Content-Type": "text/plain"}, "", MediaTypeUnsupported),
        ({**JSON, "Content-Encoding": "gzip"}, "", BodyEncoded),
        (JSON, "?stream=true", QueryUnknown),
    ],
)
def test_a_call_that_cannot_be_taken_is_refused_by_its_head(
    tmp_path: Path, headers: dict[str, str], path: str, refused: type[Exception]
) -> None:
    with pytest.raises(refused):
        checks(tmp_path).check_call(asked(headers, f"/v1/chat/completions{path}"), None)
    checks(tmp_path).check_call(asked(JSON), None)


def test_a_key_that_may_call_no_models_makes_no_call(tmp_path: Path) -> None:
    with pytest.raises(PermissionMissing):
        checks(tmp_path).check_call(asked(JSON), Key("ci", "acme", permissions=frozenset()))


def test_where_a_call_could_not_be_booked_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(DiskLow):
        checks(tmp_path, min_free_bytes=2**60).check_call(asked(JSON), None)


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Host": "evil.example"}, HostNotServed),
        ({"Origin": "https://evil.example"}, OriginRefused),
    ],
)
def test_a_page_of_somebody_else_asks_nothing(
    tmp_path: Path, headers: dict[str, str], refused: type[Exception]
) -> None:
    with pytest.raises(refused):
        checks(tmp_path).check_page(asked(headers))
    checks(tmp_path).check_page(asked({}))
