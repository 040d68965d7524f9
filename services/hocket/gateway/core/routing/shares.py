"""How several gateways share one limit: the rule by which places move between them.

The ledger of a limit has a line for each gateway: the places that it *holds*, and those that it could
use (its *wish*) when it last wrote. The sum of what is held never exceeds the limit, for a gateway only
ever takes what nobody holds, and lets go only of what it does not use. Places move when somebody is
short, and not otherwise: then each gateway keeps its fair share at most. A share is fair when nobody
could get more without somebody getting less who has no more than he (max-min fairness over the wishes);
what nobody wishes is spread evenly, so that each can begin at once. Where there are no more places than
gateways, those that want one come first, and take turns.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """What a gateway holds of a limit, and how many places it could use."""

    held: int
    wish: int


def fair(limit: int, wishes: Mapping[str, int], turn: int = 0) -> dict[str, int]:
    """Return the share of each gateway; they add up to the limit. `turn` counts on with time."""
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
    """Tell whether a gateway has less than it needs and than it should have."""
    return line.held < min(share, max(line.wish, 1))


def next_line(
    me: str, limit: int, lines: Mapping[str, Line], *, wish: int, in_use: int, turn: int = 0
) -> Line:
    """Return what `me` should write as its line, given the lines of all who live and what it could use
    now. Nothing changes in what it holds while nobody is short."""
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
    """Return how many places `me` may use now: what it holds, less what it is about to let go of."""
    mine = lines.get(me)
    if mine is None:
        return 0
    return min(mine.held, next_line(me, limit, lines, wish=wish, in_use=0, turn=turn).held)


def _in_turn(names: list[str], turn: int) -> list[str]:
    first = turn % len(names) if names else 0
    return names[first:] + names[:first]


def _fill(shares: dict[str, int], wishes: Mapping[str, int], left: int) -> int:
    """Raise the shares of those below their wishes together, until nothing is left; return how much
    that took."""
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
    """Raise the lowest of those who want more to the level of the next, or to a wish on the way."""
    low = min(shares[name] for name in hungry)
    lowest = [name for name in hungry if shares[name] == low]
    above = [shares[name] for name in hungry if shares[name] > low]
    level = min([*above, *(wishes[name] for name in lowest)])
    step, more = divmod(left, len(lowest))
    if step >= level - low:
        return [(name, level - low) for name in lowest]
    return [(name, step + (place < more)) for place, name in enumerate(lowest)]
