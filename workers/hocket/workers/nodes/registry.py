"""Which function runs the steps of which node type."""

from collections.abc import Callable, Mapping, Sequence

from hocket.workers.nodes.llm import run_llm
from hocket.workers.nodes.python import PythonNode
from hocket.workers.nodes.resources import Resources
from hocket.workers.runtime.pool import Handler


def handlers(types: Sequence[str], resources: Resources) -> dict[str, Handler]:
    """Return the handlers of the given node types."""
    return {name: _MAKERS[name](resources) for name in types}


_MAKERS: Mapping[str, Callable[[Resources], Handler]] = {
    "python": lambda resources: PythonNode(resources.threads, resources.modules),
    "llm": lambda resources: run_llm,
}
