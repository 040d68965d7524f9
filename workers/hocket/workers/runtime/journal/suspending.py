"""How an attempt ends when its handler waits."""

from dataclasses import dataclass

from hocket.schemas.messages import HandlerPlace, HandlerWait


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why an attempt ends without a result: the waits of its handler, and which of the values that came
    with the attempt are now in the journal."""

    waits: tuple[HandlerWait, ...]
    journaled: tuple[HandlerPlace, ...]
