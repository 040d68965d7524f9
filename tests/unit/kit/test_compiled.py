"""Compiled parts run only beside the sources that they were made of, and keep the texts of errors."""

import ast
import json
import runpy
from pathlib import Path

import pytest

from hocket.kit.compiled import CompiledPartStale, check_compiled, digest_of

ROOT = Path(__file__).parents[3]


@pytest.mark.plain
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
        'class Large(Given):\n    """{x} is large."""\n'
    )
    told = made["with_error_texts"](source)
    assert told.startswith(source)
    assert told[len(source) :].splitlines() == [
        """setattr(Base, "__doc__", 'Base: {reason}.')""",
        r"""setattr(Given, "__doc__", 'It is {x}.\n\n    Do y.')""",
        """setattr(Large, "__doc__", '{x} is large.')""",
    ]


def test_functions_that_tests_replace_are_compiled_so_that_they_are_looked_up() -> None:
    made = runpy.run_path(str(ROOT / "deploy" / "compiled_parts.py"))
    source = (
        '"""A module."""\n'
        "from functools import cache\n"
        "@cache\n"
        "def read():\n    return 1\n"
        "def kept():\n    def read(): ...\n    return read\n"
        "class Reader:\n"
        "    async def read(self): ...\n"
        "    @property\n"
        "    def open(self): ...\n"
    )
    told = made["with_replaceable"](source, {"read", "open"})
    assert told.count(made["REPLACEABLE"]) == 1
    assert told.replace(made["REPLACEABLE"], "").splitlines() == [
        '"""A module."""',
        "from functools import cache",
        "@_replaceable",
        "@cache",
        "def read():",
        "    return 1",
        "def kept():",
        "    def read(): ...",
        "    return read",
        "class Reader:",
        "    @_replaceable",
        "    async def read(self): ...",
        "    @property",
        "    def open(self): ...",
    ]
    assert made["with_replaceable"](source, {"other"}) == source


def compiled_modules() -> dict[str, ast.Module]:
    made = runpy.run_path(str(ROOT / "deploy" / "compiled_parts.py"))
    tops = [ROOT / room for room in made["ROOMS"]]
    found = {}
    for name in made["COMPILED"]:
        (top,) = (top for top in tops if (top / "hocket" / name).exists())
        here = list(made["sources"](top, [name]))
        found |= {str(one.relative_to(top / "hocket")): ast.parse(one.read_text()) for one in here}
    return found


def test_what_is_compiled_is_there() -> None:
    assert {
        "coordinator/core/run/machine.py",
        "coordinator/core/scheduling/gate.py",
        "coordinator/dispatch/dispatcher.py",
        "kit/nats/protocol.py",
        "schemas/ids.py",
    } <= set(compiled_modules())


def test_no_struct_of_msgspec_is_compiled() -> None:
    """It would take any field of another class for a field of type `type`."""
    for name, module in compiled_modules().items():
        bases = [b for n in ast.walk(module) if isinstance(n, ast.ClassDef) for b in n.bases]
        assert not [base for base in bases if "Struct" in ast.unparse(base)], name


def test_the_name_of_a_caught_error_has_one_type_in_a_compiled_function() -> None:
    """A compiled function gives a name the type that it has first, and refuses another one."""
    for name, module in compiled_modules().items():
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                caught: dict[str, set[str]] = {}
                for node in ast.walk(function):
                    if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                        caught.setdefault(node.name, set()).add(ast.unparse(node.type))
                for node in ast.walk(function):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        assert node.id not in caught, (name, function.name, node.id)
                assert all(len(kinds) == 1 for kinds in caught.values()), (name, function.name)


def test_no_compiled_coroutine_is_a_generator() -> None:
    """mypyc knows no asynchronous generators: with one, nothing at all is compiled."""
    for name, module in compiled_modules().items():
        for one in ast.walk(module):
            if isinstance(one, ast.AsyncFunctionDef):
                assert not any(map(_yields, one.body)), f"{name}:{one.lineno}"


def _yields(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return False
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return True
    return any(map(_yields, ast.iter_child_nodes(node)))


def test_nothing_is_awaited_in_a_handler_of_a_compiled_coroutine() -> None:
    """Compiled coroutines share the exception that is being handled with all tasks of the thread: one
    that is suspended in `except` or `finally` gives it to others, and goes on with theirs."""
    for name, module in compiled_modules().items():
        for one in ast.walk(module):
            if isinstance(one, ast.Try):
                handlers = [statement for handler in one.handlers for statement in handler.body]
                assert not any(map(_awaits, [*handlers, *one.finalbody])), f"{name}:{one.lineno}"


def _awaits(statement: ast.stmt) -> bool:
    found = ast.Await | ast.AsyncWith | ast.AsyncFor
    return any(isinstance(one, found) for one in ast.walk(statement))


def test_what_works_in_a_thread_is_not_compiled() -> None:
    """A thread in compiled code lets no other one run: a run of 199,000 steps that was read back
    stopped its coordinator for longer than its lease."""
    made = runpy.run_path(str(ROOT / "deploy" / "compiled_parts.py"))
    tops = [ROOT / room for room in made["ROOMS"]]
    compiled = {str(source.relative_to(top)) for top in tops for source in made["sources"](top)}
    assert "hocket/coordinator/core/run/machine.py" in compiled
    targets = set()
    for top in tops:
        for file in top.rglob("*.py"):
            tree = ast.parse(file.read_text())
            imported = {
                name.asname or name.name: f"{node.module}.py"
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for name in node.names
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "asyncio.to_thread":
                    module = imported.get(ast.unparse(node.args[0]))
                    own = str(file.relative_to(top))
                    targets.add(own if module is None else module[:-3].replace(".", "/") + ".py")
    assert "hocket/coordinator/core/run/state/restore.py" in targets
    assert not targets & compiled
