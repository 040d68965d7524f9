"""Names of what tests replace, which a wheel for them must look up.

    python tests/support/tools/replaced_names.py

prints the names that `setattr`, `delattr`, `mock.patch.object` and `_replaced` are called with, and
those in pairs of a place and a name that `swapped` and `parametrize` are called with. Compiled code
calls compiled functions without looking them up, but for those of these names
(`deploy/compiled_parts.py --replaceable`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
REPLACING = {"setattr", "delattr", "object", "_replaced"}
TAKING_PAIRS = {"swapped", "parametrize"}


def names_in(module: ast.Module) -> Iterator[str]:
    """Yield the identifiers that are given as strings to a call which replaces something."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            pairs = [one.elts for one in ast.walk(node) if isinstance(one, ast.Tuple)]
            given = [node.args] if called in REPLACING else pairs if called in TAKING_PAIRS else []
            for place, *more in filter(None, given):
                name = more[0].value if more and isinstance(more[0], ast.Constant) else None
                is_place = called in REPLACING or isinstance(place, ast.Name | ast.Attribute)
                if is_place and isinstance(name, str) and name.isidentifier():
                    yield name


if __name__ == "__main__":
    found = {name for file in TESTS.rglob("*.py") for name in names_in(ast.parse(file.read_text()))}
    print(*sorted(found))
