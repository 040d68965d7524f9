"""Compiled parts run only beside the sources that they were made of, and keep the texts of errors."""

import json
import runpy
from pathlib import Path

import pytest

from hocket.kit.compiled import CompiledPartStale, check_compiled, digest_of

ROOT = Path(__file__).parents[3]


def test_a_plain_checkout_has_no_compiled_parts() -> None:
    assert check_compiled() == 0


def test_a_part_whose_source_was_changed_is_refused(tmp_path: Path) -> None:
    source, manifest = tmp_path / "gate.py", tmp_path / "manifest.json"
    source.write_text("x = 1\n")
    manifest.write_text(json.dumps({"gate.py": digest_of(b"x = 1\n")}))
    assert check_compiled(manifest, tmp_path) == 1
    source.write_text("x = 2\n")
    with pytest.raises(CompiledPartStale, match=r"`gate\.py` was changed after it was compiled"):
        check_compiled(manifest, tmp_path)


def test_a_part_whose_source_is_gone_is_refused(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"gate.py": digest_of(b"")}))
    with pytest.raises(CompiledPartStale):
        check_compiled(manifest, tmp_path)


def test_exceptions_are_given_their_docstrings_back() -> None:
    made = runpy.run_path(str(ROOT / "deploy" / "compiled_parts.py"))
    source = (
        'class Base(Exception):\n    """Base: {reason}."""\n'
        'class Plain:\n    """No error."""\n'
        'class Given(HocketError):\n    """It is {x}.\n\n    Do y."""\n'
    )
    told = made["with_error_texts"](source)
    assert told.startswith(source)
    assert told[len(source) :].splitlines() == [
        """setattr(Base, "__doc__", 'Base: {reason}.')""",
        r"""setattr(Given, "__doc__", 'It is {x}.\n\n    Do y.')""",
    ]


def test_what_is_compiled_is_there() -> None:
    made = runpy.run_path(str(ROOT / "deploy" / "compiled_parts.py"))
    names = {str(one.relative_to(ROOT / "services" / "hocket")) for one in made["sources"](ROOT)}
    assert {
        "coordinator/core/run/machine.py",
        "coordinator/core/scheduling/gate.py",
        "kit/nats/protocol.py",
    } <= names
