"""Trace contexts are read as W3C has them; attributes are those that OpenTelemetry publishes."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import opentelemetry.semconv._incubating.attributes as published
import pytest

from hocket.schemas.tracing.attributes import MEANINGS
from hocket.schemas.tracing.context import TraceContext, read_context
from support.places import ROOT

STANDS = ("Deprecated in favor of stable", "Deprecated: Moved to the [OpenTelemetry GenAI")
"""Names that another package or repository publishes now."""
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("03", True)])
def test_a_context_is_read_and_written(flags: str, sampled: bool) -> None:
    context = read_context(f"00-{TRACE}-{SPAN}-{flags}")
    assert context == TraceContext(TRACE, SPAN, int(flags))
    assert context.is_sampled is sampled
    assert context.header == f"00-{TRACE}-{SPAN}-{flags}"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_no_context_is_none(text: str | None) -> None:
    assert read_context(text) is None


def test_a_later_version_may_say_more() -> None:
    assert read_context(f"cc-{TRACE}-{SPAN}-01-what.will.be") == TraceContext(TRACE, SPAN, 1)


def test_attributes_that_are_not_ours_are_published_and_not_deprecated() -> None:
    known: dict[str, str] = {}
    for module in iter_modules(published.__path__):
        source = import_module(f"{published.__name__}.{module.name}")
        text = Path(str(source.__file__)).read_text()
        found = re.findall(r'Final = "([^"]+)"\n(?:"""\n(.*?)\n""")?', text, re.DOTALL)
        known |= dict(found)
    for name in MEANINGS:
        if not name.startswith("hocket."):
            assert name in known, name
            is_gone = known[name].startswith("Deprecated") and not known[name].startswith(STANDS)
            assert not is_gone, known[name]


def test_the_page_has_every_attribute() -> None:
    page = (ROOT / "docs/reference/traces.md").read_text()
    for name, (spans, meaning) in MEANINGS.items():
        shown = f"{name}KEY" if name.endswith(".") else name
        assert f"| `{shown}` | {spans} | {meaning} |" in page
