"""How an attempt ends whose handler waits."""

from dataclasses import dataclass

from hocket.schemas.messages import HandlerPlace, HandlerWait


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why an attempt ends without a result: what its handler waits for, and which of the values that
    came with the attempt the journal has by now."""

    waits: tuple[HandlerWait, ...]
    journaled: tuple[HandlerPlace, ...]
