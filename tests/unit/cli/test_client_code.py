"""The client's methods are those of the API as it is, and each operation has one."""

import pytest

from hocket.cli import client_code
from support.places import ROOT


@pytest.mark.parametrize(("name", "text"), client_code.modules().items())
def test_the_clients_code_is_current(name: str, text: str) -> None:
    path = ROOT / "services/hocket/client" / name
    assert path.read_text("utf-8") == text, "run `make docs`"


def test_no_method_is_named_that_the_api_does_not_have() -> None:
    paths = client_code.described()["paths"].values()
    known = {operation["operationId"] for item in paths for operation in item.values()}
    assert set(client_code.METHODS) | client_code.BY_HAND <= known
    assert known >= client_code.MAY_REPEAT | client_code.DOCUMENTS | client_code.BY_PLACE.keys()
