"""How several gateways share one limit: the rule by which places move between them.

The ledger of a limit has a line for each gateway: the places it *holds*, and those it could use
(its *wish*) as of its last write. The sum of the held places never exceeds the limit, because a
gateway takes only places that nobody holds, and releases only places it is not using. Places move
only while some gateway is short; then each gateway keeps at most its fair share. Shares are fair if
no gateway could get more without taking from one that has no more itself (max-min fairness over the
wishes); places that nobody wishes for are spread evenly, so that each gateway can start a call at
once. If there are no more places than gateways, those that wish for one come first, and take turns.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """The places of a limit that a gateway holds, and how many it could use."""

    held: int
    wish: int


def fair(limit: int, wishes: Mapping[str, int], turn: int = 0) -> dict[str, int]:
    """Return the share of each gateway; shares add up to the limit. `turn` advances with time."""
    names = _in_turn(sorted(wishes), turn)
    scarce = len(names) >= limit
    shares = dict.fromkeys(names, 0 if scarce else 1)
    left = limit - sum(shares.values())
    left -= _fill(shares, wishes, left)
    idle = [name for name in names if not shares[name]] if scarce else sorted(names)
    least, more = divmod(left, len(idle) or len(names))
    for place, name in enumerate(idle or names):
        shares[name] += least + (place < more)
    return shares


def is_short(line: Line, share: int) -> bool:
    """Tell whether a gateway holds less than both its need and its fair share."""
    return line.held < min(share, max(line.wish, 1))


def next_line(
    me: str, limit: int, lines: Mapping[str, Line], *, wish: int, in_use: int, turn: int = 0
) -> Line:
    """Return the line that `me` should write, given the lines of all live gateways and its current
    wish.

    While no gateway is short, the places it holds do not change.
    """
    mine = lines.get(me, Line(0, 0))
    seen = {**lines, me: Line(mine.held, wish)}
    shares = fair(limit, {name: line.wish for name, line in seen.items()}, turn)
    others = sum(line.held for name, line in seen.items() if name != me)
    held = max(min(mine.held, limit - others), min(in_use, mine.held))
    if not any(is_short(line, shares[name]) for name, line in seen.items()):
        return Line(held, wish)
    if held > shares[me]:
        return Line(max(shares[me], min(in_use, held)), wish)
    return Line(max(held, min(shares[me], limit - others)), wish)


def cap(me: str, limit: int, lines: Mapping[str, Line], *, wish: int, turn: int = 0) -> int:
    """Return how many places `me` may use now: those it holds, minus those it is about to release."""
    mine = lines.get(me)
    if mine is None:
        return 0
    return min(mine.held, next_line(me, limit, lines, wish=wish, in_use=0, turn=turn).held)


def _in_turn(names: list[str], turn: int) -> list[str]:
    first = turn % len(names) if names else 0
    return names[first:] + names[:first]


def _fill(shares: dict[str, int], wishes: Mapping[str, int], left: int) -> int:
    """Raise the shares below their wishes evenly until nothing is left;
    return how much was given out."""
    before = left
    while left:
        hungry = [name for name in shares if shares[name] < wishes[name]]
        if not hungry:
            break
        for name, more in _raises(hungry, shares, wishes, left):
            shares[name] += more
            left -= more
    return before - left


def _raises(
    hungry: list[str], shares: Mapping[str, int], wishes: Mapping[str, int], left: int
) -> Iterable[tuple[str, int]]:
    """Yield raises that lift the lowest shares to the next level, or to a wish below it."""
    low = min(shares[name] for name in hungry)
    lowest = [name for name in hungry if shares[name] == low]
    above = [shares[name] for name in hungry if shares[name] > low]
    level = min([*above, *(wishes[name] for name in lowest)])
    step, more = divmod(left, len(lowest))
    if step >= level - low:
        return [(name, level - low) for name in lowest]
    return [(name, step + (place < more)) for place, name in enumerate(lowest)]
