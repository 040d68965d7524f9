"""The address that `hocket console` prints."""

from typing import Any

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app
from hocket.cli.remote.api import Api


@pytest.mark.parametrize(
    ("options", "query"), [((), "ticket=a.1.b"), (("--tenant", "acme"), "ticket=a.1.b&tenant=acme")]
)
def test_the_console_opens_with_the_named_tenant(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], query: str
) -> None:
    def post(_api: Api, _path: str, *_: Any, **__: Any) -> dict[str, str]:
        return {"ticket": "a.1.b"}

    monkeypatch.setattr(Api, "post", post)

    told = CliRunner().invoke(app, ["--api", "http://h:1", *options, "console", "--no-browser"])

    assert told.output.strip() == f"http://h:1/console/sign-in?{query}"
