"""The pages of docs/reference/nodes tell of every field and name errors as they are."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import hocket.coordinator
import hocket.gateway
import hocket.workers
from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline import spec
from hocket.schemas.pipeline.spec import NodeBase

ROOT = Path(__file__).resolve()
while not (ROOT / "pyproject.toml").exists():
    ROOT = ROOT.parent
PAGES = {page.stem: page for page in (ROOT / "docs/reference/nodes").glob("*.md")}
MODELS = {
    "agent": spec.AgentNode,
    "http": spec.HttpNode,
    "mcp": spec.McpNode,
    "nats": spec.NatsNode,
    "llm": spec.LlmNode,
    "planning": spec.PlanningNode,
    "python": spec.PythonNode,
    "retrieval": spec.RetrievalNode,
    "sql": spec.SqlNode,
}


def known_errors() -> dict[str, str]:
    """Return the class of every error code of workers, gateway and coordinator."""
    for package in (hocket.workers, hocket.gateway, hocket.coordinator):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found, level = {}, HocketError.__subclasses__()
    while level:
        found |= {one.code: str(one.error_class) for one in level}
        level = [below for one in level for below in one.__subclasses__()]
    return found


def test_every_node_type_that_workers_run_has_a_page() -> None:
    assert sorted(PAGES) == sorted(MODELS) == sorted(spec.WORKER_TYPES)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_page_has_every_field_of_its_node_and_no_other(name: str) -> None:
    text = PAGES[name].read_text("utf-8")
    table = text.split("## Fields", 1)[1].split("\n\n", 2)[1]
    shown = {
        cell.partition("[")[0] for cell in re.findall(r"^\| `([\w.\[\]]+)`", table, re.MULTILINE)
    }
    own = set(MODELS[name].model_fields) - set(NodeBase.model_fields) - {"type"}
    assert shown - set(NodeBase.model_fields) == own


def test_errors_are_named_with_their_class() -> None:
    known = known_errors()
    for page in PAGES.values():
        told = page.read_text("utf-8").partition("## Errors")[2]
        row = r"^\| ((?:`\w+`(?:, )?)+) \| ((?:`\w+`(?: or )?)+) \|"
        for codes, classes in re.findall(row, told, re.MULTILINE):
            for code in re.findall(r"\w+", codes):
                if code == "handler_failed":  # its class is the exception's
                    continue
                assert code in known, (page.name, code)
                assert known[code] in re.findall(r"`(\w+)`", classes), (
                    page.name,
                    code,
                    known[code],
                )
