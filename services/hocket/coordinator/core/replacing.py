"""`replace` for frozen dataclasses with slots, at a fifth of the cost of the standard library's.

`dataclasses.replace` runs the frozen class's own `__init__`, which must go around its own guard for
each field; a run has thirty. Here the copy is made as a draft: a twin class with the same slots and no
guard, which is given the frozen class when it is done. No one else ever sees a draft.
"""

from collections.abc import Callable
from dataclasses import fields, make_dataclass
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")

_copiers: dict[type, Callable[[Any], Any]] = {}


def replace(value: T, **changes: Any) -> T:
    """Return a copy with some fields changed; raises AttributeError for one that does not exist."""
    kind = type(value)
    draft = (_copiers.get(kind) or _copier(kind))(value)
    for name, changed in changes.items():
        setattr(draft, name, changed)
    draft.__class__ = kind
    return draft  # type: ignore[no-any-return]


def _copier(kind: Any) -> Callable[[Any], Any]:
    names = [field.name for field in fields(kind)]
    assert kind.__slots__ == tuple(names), f"{kind} is not a dataclass with slots of its own"
    draft = make_dataclass(f"{kind.__name__}Draft", names, slots=True)
    if len(names) == 1:
        name = names[0]
        copier: Callable[[Any], Any] = lambda value: draft(getattr(value, name))  # noqa: E731
    else:
        read = attrgetter(*names)
        copier = lambda value: draft(*read(value))  # noqa: E731
    _copiers[kind] = copier
    return copier
