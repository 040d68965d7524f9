"""Names of what tests put something else in the place of: the names that a wheel for them must look up.

    python tests/support/tools/replaced_names.py

prints the names in calls of `setattr`, `delattr`, `mock.patch.object`, the simulation's `swapped` and
its planted bugs' `_replaced`. Compiled code calls compiled functions without looking them up, but for
those of these names (`deploy/compiled_parts.py --replaceable`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
REPLACING = {"setattr", "delattr", "object", "swapped", "_replaced"}


def names_in(module: ast.Module) -> Iterator[str]:
    """Yield the identifiers that are given as strings to a call which replaces something."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in REPLACING:
            for given in node.args:
                for one in given.elts if isinstance(given, ast.Tuple) else [given]:
                    name = one.value if isinstance(one, ast.Constant) else None
                    if isinstance(name, str) and name.isidentifier():
                        yield name


if __name__ == "__main__":
    found = {name for file in TESTS.rglob("*.py") for name in names_in(ast.parse(file.read_text()))}
    print(*sorted(found))
