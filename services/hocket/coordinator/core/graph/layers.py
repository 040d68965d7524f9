"""The layers of a node: map outside, then loop, then what its type says."""

from hocket.coordinator.core.run.state import ParentRelation, Role
from hocket.schemas.pipeline.plan import NodePlan
from hocket.schemas.pipeline.spec import WAIT_TYPES

_BY_TYPE = {"graph": Role.GRAPH, "race": Role.RACE, "pipeline": Role.SUBRUN}


def first_role(plan: NodePlan, link: ParentRelation) -> Role:
    """Return the outermost layer of a node that a step with this link still has to open."""
    if plan.node.map and link not in (ParentRelation.ITEM, ParentRelation.ROUND):
        return Role.MAP
    if plan.node.loop and link is not ParentRelation.ROUND:
        return Role.LOOP
    if plan.node.type in WAIT_TYPES:
        return Role.WAIT
    return _BY_TYPE.get(plan.node.type, Role.LEAF)
