"""The budget of one evaluation: operations and memory, both counted, never timed.

An operation corresponds to about 50 ns: a node of the template, an item that a filter visits, 16
characters that are read or written. Values are charged for before they are made. The counts depend only
on the template and its values, so that every process, and every replay, refuses the same evaluations.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from hocket.schemas.errors import HocketError

MAX_OPERATIONS = 200_000
"""The limit on the operations of one evaluation: 5 to 20 ms of one core."""
MAX_TOGETHER_OPERATIONS = 12_000_000
"""The limit on all evaluations that are made together, as for one event of a run: 0.3 to 1.2 s."""
EVALUATION_OPERATIONS = 20
"""What an evaluation takes besides its operations, counted where many are made together."""
MAX_TOGETHER_BYTES = 64_000_000
"""The limit on the bytes that the templates of one value (`with`, `output`) have made and still hold."""
MAX_CHECK_OPERATIONS = 600_000
"""The limit on the operations of checking the largest values against a schema."""
MIN_CHECK_OPERATIONS = 100_000
"""The same for a small value: 5 to 15 ms, in which its coordinator does nothing else."""
CHECK_OPERATIONS_PER_PART = 12
"""Further operations allowed for each text, number, list and mapping of the value."""
MAX_MADE_BYTES = 24_000_000
"""The limit on the bytes of all values that one evaluation makes, including those that it drops."""
MAX_TEXT_CHARS = 2_000_000
"""The limit on the characters of one text."""
MAX_VALUE_BYTES = 16_000_000
"""The limit on the result of an expression, as JSON."""
MAX_VALUE_PARTS = 1_000_000
"""The limit on the texts, numbers, lists and mappings in the result of an expression."""
MAX_CALL_DEPTH = 200
"""How deep macros and recursive loops may call each other, in levels of the template."""
MAX_INTEGER = 2**63 - 1
"""Computed integers stay within 64 bits."""
CHARS_PER_OPERATION = 16

DEEP_CURE = "Compute a flatter value."
LESS_CURE = "Compute less in one expression, or move the work into a `python` node."
SMALLER_CURE = "Make it smaller, or move the work into a `python` node."
NUMBER_CURE = "Stay within 64 bits and finite numbers."
LARGE_CURE = "Pass it on whole{how}, and let the node that gets it read it."


class Refused(Exception):
    """The evaluation was refused; `reason` and `cure` go into the error."""

    def __init__(self, reason: str, cure: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cure = cure


class LargeValueRead(Refused):
    """The evaluation would read a value of which there is only the `reference`
    (`hocket.schemas.checks.large_values`)."""

    def __init__(self, reference: Mapping[str, Any]) -> None:
        super().__init__(
            "it reads a large value, which only workers can read", LARGE_CURE.format(how="")
        )
        self.reference = reference


class Meter:
    """The account of one evaluation."""

    __slots__ = ("bytes_left", "depth", "given", "limit", "operations_left")

    def __init__(self, operations: int = MAX_OPERATIONS) -> None:
        self.limit = operations
        self.operations_left = operations
        self.given = operations
        self.bytes_left = MAX_MADE_BYTES
        self.depth = 0

    def spend(self, operations: int) -> None:
        """Count operations; raise Refused if they are used up."""
        self.operations_left -= operations
        if self.operations_left < 0:
            raise Refused(f"it takes more than {self.limit:,} operations", LESS_CURE)

    def make(self, size: int) -> None:
        """Count bytes that are about to be made; raise Refused if they are used up."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise Refused(f"its values take more than {MAX_MADE_BYTES:,} bytes", SMALLER_CURE)

    @property
    def made(self) -> int:
        """The bytes made so far."""
        return MAX_MADE_BYTES - self.bytes_left

    def text(self, chars: int) -> None:
        """Count a text of `chars` characters that is about to be made."""
        if chars > MAX_TEXT_CHARS:
            raise Refused(f"a text grows beyond {MAX_TEXT_CHARS:,} characters", SMALLER_CURE)
        self.bytes_left -= 4 * chars + 64
        self.operations_left -= chars // CHARS_PER_OPERATION + 1
        if self.operations_left < 0 or self.bytes_left < 0:
            self._used_up()

    def items(self, count: int, each: int = 8) -> None:
        """Count a list that is about to be made; `each` is the size of an item in bytes, 8 if the items
        exist already."""
        self.bytes_left -= each * count + 64
        self.operations_left -= count // 4 + 1
        if self.operations_left < 0 or self.bytes_left < 0:
            self._used_up()

    def read(self, chars: int) -> None:
        """Count the reading of a text."""
        self.spend(chars // CHARS_PER_OPERATION + 1)

    def _used_up(self) -> NoReturn:
        self.spend(0)
        self.make(0)
        raise AssertionError


class Account:
    """The shared account of evaluations that are made together; each of them has a meter of its own."""

    __slots__ = ("_known", "held", "operations_left")

    def __init__(self) -> None:
        self.operations_left = MAX_TOGETHER_OPERATIONS
        self.held = 0
        self._known: dict[int, Any] = {}

    @property
    def is_used_up(self) -> bool:
        """Whether no further evaluation may be made."""
        return self.operations_left <= 0

    @property
    def operations(self) -> int:
        """The operations counted so far."""
        return MAX_TOGETHER_OPERATIONS - self.operations_left

    def meter(self) -> Meter:
        """Return a meter for the next evaluation, which may use at most what is left for all."""
        meter = Meter()
        if self.operations_left < MAX_OPERATIONS:
            meter.limit = MAX_TOGETHER_OPERATIONS
            meter.given = meter.operations_left = max(0, self.operations_left)
        return meter

    def used(self, meter: Meter) -> None:
        """Add what an evaluation used."""
        used = meter.given - max(0, meter.operations_left)
        self.operations_left -= used + EVALUATION_OPERATIONS

    def spend(self, operations: int) -> None:
        """Count work other than evaluations."""
        self.operations_left -= operations

    def know(self, value: Any) -> None:
        """Remember a value that was looked through; none changes while evaluations are made together."""
        self._known[id(value)] = value  # kept, so that no other gets its place

    def knows(self, value: Any) -> bool:
        """Tell whether this very value was looked through."""
        return id(value) in self._known

    def hold(self, size: int) -> None:
        """Count bytes that a value keeps; raise Refused if its templates make too many."""
        self.held += size
        if self.held > MAX_TOGETHER_BYTES:
            raise Refused(
                f"its templates make values of more than {MAX_TOGETHER_BYTES:,} bytes", SMALLER_CURE
            )


class Names(dict[str, Any]):
    """The names that an evaluation can read, with the account that it shares with others."""

    __slots__ = ("account",)

    def __init__(self, account: Account, names: Mapping[str, Any]) -> None:
        super().__init__(names)
        self.account = account

    def also(self, **more: Any) -> "Names":
        """Return these names and more."""
        return Names(self.account, {**self, **more})


def account_of(scope: Mapping[str, Any]) -> Account:
    """Return the account that evaluations against a scope share, or a new one if it has none."""
    return scope.account if isinstance(scope, Names) else Account()


def stopped(error: HocketError) -> Refused:
    """Return the error of another check as a refusal of this evaluation."""
    fields = error.fields
    return Refused(str(fields.get("reason", error)), str(fields.get("cure", "")))
