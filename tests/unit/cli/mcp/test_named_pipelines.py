"""The names of `hocket mcp --pipelines` are checked as it starts."""

from typing import Any, cast

import pytest

from hocket.cli.mcp.named_pipelines import missing, names_of
from hocket.cli.mcp.tools import PAGE
from hocket.cli.remote.api import Api
from hocket.cli.terminal.errors import ApiUnreachable
from hocket.schemas.errors import InvalidInput


class Listing:
    """Stands for the API of a platform with these pipelines, or of one that does not answer (None)."""

    def __init__(self, names: list[str] | None) -> None:
        self.names = names
        self.pages = 0

    def get(self, _path: str, after: str | None, limit: int) -> dict[str, Any]:
        self.pages += 1
        if self.names is None:
            raise ApiUnreachable(url="http://nowhere", reason="it is not started yet")
        page = [name for name in sorted(self.names) if after is None or name > after][:limit]
        return {"pipelines": [{"pipeline": name, "version": 1} for name in page]}


def told(listing: Listing, *names: str) -> str | None:
    error = missing(cast("Api", listing), names)
    return None if error is None else str(error)


def test_a_name_that_is_not_there_is_told_with_those_that_are() -> None:
    said = told(Listing(["order", "research"]), "order", "reserch")
    assert said is not None
    assert "`reserch`" in said
    assert "`order`, `research`" in said


def test_of_many_pipelines_some_are_told() -> None:
    names = [f"p{number:04}" for number in range(PAGE + 30)]
    assert told(Listing(names), names[-1]) is None
    said = told(Listing(names), "nowhere")
    assert said is not None
    assert "`p0000`, `p0001`" in said
    assert "`p0019` and 110 more" in said


def test_a_tenant_without_pipelines_and_a_platform_that_cannot_tell() -> None:
    said = told(Listing([]), "order")
    assert said is not None
    assert "It has: no pipeline." in said
    assert told(Listing(None), "order") is None


def test_without_names_nothing_is_asked() -> None:
    listing = Listing(None)
    assert told(listing) is None
    assert listing.pages == 0


def test_a_list_without_a_name_is_refused_instead_of_serving_all() -> None:
    assert names_of(None) == ()
    assert names_of(" order, help ,order") == ("order", "help")
    for given in ("", " ", ","):
        with pytest.raises(InvalidInput, match="--pipelines"):
            names_of(given)
