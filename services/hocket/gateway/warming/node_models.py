"""The models that pipeline nodes called before, for nodes whose handler chooses the model."""

from collections import OrderedDict
from collections.abc import Sequence

from hocket.schemas.messages import Attribution

MAX_KNOWN_NODES = 10_000
"""The most nodes whose models are remembered."""
MAX_MODELS = 16
"""The most models remembered per node."""

Node = tuple[str, str, str]
"""A node: tenant, pipeline, and path in the pipeline."""


class NodeModels:
    """Remembers the models of the nodes that called most recently."""

    def __init__(self) -> None:
        self._models_of: OrderedDict[Node, dict[str, None]] = OrderedDict()

    def learn(self, model: str, caller: Attribution) -> None:
        """Remember that a node calls a model."""
        if caller.pipeline is None or caller.node is None:
            return
        node = (caller.tenant, caller.pipeline, caller.node)
        models = self._models_of.setdefault(node, {})
        self._models_of.move_to_end(node)
        if len(models) < MAX_MODELS:
            models[model] = None
        if len(self._models_of) > MAX_KNOWN_NODES:
            self._models_of.popitem(last=False)

    def of(self, node: Node) -> Sequence[str]:
        """Return the models that a node called."""
        return tuple(self._models_of.get(node, ()))
