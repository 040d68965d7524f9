"""How the steps of a node are counted, and what became of it."""

import pytest

from hocket.admin.node_steps import OF_NODES, Counts, counted

NONE = Counts(0, 0, 0, 0, 0)


def row(**levels: Counts) -> dict[str, int]:
    return {
        f"{name}_{field}": number
        for name in OF_NODES
        for field, number in levels.get(name, NONE)._asdict().items()
    }


DONE = Counts(1, 1, 0, 0, 0)
ITEMS = Counts(1_000, 990, 10, 0, 0)


@pytest.mark.parametrize(
    ("levels", "state", "items"),
    [
        ({"inner": Counts(1, 0, 1, 0, 0)}, "failed", (0, 1)),
        ({"map": DONE, "inner": ITEMS}, "succeeded", (990, 1_000)),
        ({"map": Counts(1, 0, 0, 0, 0), "inner": Counts(9, 3, 2, 0, 0)}, "open", (3, 9)),
        ({"map": Counts(1, 0, 1, 0, 0), "inner": Counts(9, 3, 1, 5, 0)}, "failed", (3, 9)),
        ({"map": DONE}, "succeeded", (1, 1)),
        ({"loop": DONE, "inner": Counts(30, 30, 0, 0, 0)}, "succeeded", (30, 30)),
        ({"map": DONE, "loop": Counts(4, 3, 1, 0, 0), "inner": ITEMS}, "succeeded", (3, 4)),
        ({"map": Counts(3, 2, 1, 0, 0), "inner": Counts(6, 5, 1, 0, 0)}, "failed", (5, 6)),
    ],
    ids=["alone", "skips", "goes-on", "fails", "empty", "loop", "items-that-loop", "within-a-map"],
)
def test_a_node_is_what_its_own_step_is_and_its_items_or_rounds_are_counted(
    levels: dict[str, Counts], state: str, items: tuple[int, int]
) -> None:
    own, inner = counted(row(**levels))
    assert (own.state, (inner.succeeded, inner.steps)) == (state, items)


def test_a_node_whose_steps_all_ended_is_not_open() -> None:
    assert Counts(3, 0, 0, 0, 3).state == "skipped"
    assert Counts(3, 1, 0, 1, 1).state == "cancelled"
    assert Counts(3, 2, 0, 0, 1).state == "succeeded"
    assert Counts(3, 2, 0, 0, 0).state == "open"
