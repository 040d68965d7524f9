"""The scopes of names that a template sets, by the rules of Jinja2: loops, macros, calls, `with`, filter
and set blocks have their own scope; `if` does not. A name that may be unset is looked up further out."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Scope:
    """One scope during compilation: the slots of its names, and the names that are certainly set."""

    slots: dict[str, int] = field(default_factory=dict)
    sure: set[str] = field(default_factory=set)


class Scopes:
    """The scopes around the place that is being compiled, and the free names read so far."""

    def __init__(self) -> None:
        self.stack = [Scope()]
        self.free: set[str] = set()
        self.count = 0

    def open(self) -> Scope:
        scope = Scope()
        self.stack.append(scope)
        return scope

    def close(self) -> None:
        self.stack.pop()

    def bind(self, name: str) -> int:
        """Return the slot of a name that is set here."""
        scope = self.stack[-1]
        scope.sure.add(name)
        if name not in scope.slots:
            scope.slots[name] = self.count
            self.count += 1
        return scope.slots[name]

    def find(self, name: str) -> tuple[tuple[int, ...], bool]:
        """Return the slots that may hold a name, innermost first, and whether one certainly does."""
        found: list[int] = []
        for scope in reversed(self.stack):
            if name in scope.slots:
                found.append(scope.slots[name])
                if name in scope.sure:
                    return tuple(found), True
        return tuple(found), False

    def sure_here(self) -> set[str]:
        return set(self.stack[-1].sure)

    def set_sure_here(self, names: set[str]) -> None:
        self.stack[-1].sure = names
