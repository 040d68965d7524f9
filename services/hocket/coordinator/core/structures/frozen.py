"""`replace` and construction of frozen dataclasses with slots, at a fifth of what they cost else.

`dataclasses.replace`, and the class itself when it is called, run the frozen class's own `__init__`,
which must go around its own guard for each field; a step has forty. Here a value is made as a draft: a
twin class with the same slots, defaults and no guard, which is given the frozen class when it is done.
No one else ever sees a draft.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields, make_dataclass
from operator import attrgetter
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

_copiers: dict[type, Callable[[Any], Any]] = {}


def replace(value: T, **changes: Any) -> T:
    """Return a copy with some fields changed; raises AttributeError for one that does not exist."""
    kind = type(value)
    draft = (_copiers.get(kind) or _copier(kind))(value)
    for name, changed in changes.items():
        setattr(draft, name, changed)
    draft.__class__ = kind
    return draft  # type: ignore[no-any-return]


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """Return what is called like the class and gives the same values."""
    draft = _draft(kind)

    def make(*values: P.args, **named: P.kwargs) -> T:
        made = draft(*values, **named)
        made.__class__ = kind
        return made  # type: ignore[no-any-return]

    return make


def _copier(kind: Any) -> Callable[[Any], Any]:
    names = [field.name for field in fields(kind)]
    draft = _draft(kind)
    if len(names) == 1:
        name = names[0]
        copier: Callable[[Any], Any] = lambda value: draft(getattr(value, name))  # noqa: E731
    else:
        read = attrgetter(*names)
        copier = lambda value: draft(*read(value))  # noqa: E731
    _copiers[kind] = copier
    return copier


def _draft(kind: Any) -> Any:
    names = tuple(field.name for field in fields(kind))
    assert kind.__slots__ == names, f"{kind} is not a dataclass with slots of its own"
    assert not hasattr(kind, "__post_init__"), f"{kind} does more when it is made"
    twins = [(one.name, Any, _default(one)) for one in fields(kind)]
    return make_dataclass(f"{kind.__name__}Draft", twins, slots=True)


def _default(one: "Field[Any]") -> Any:
    if one.default_factory is not MISSING:
        return field(default_factory=one.default_factory)
    return field() if one.default is MISSING else field(default=one.default)
