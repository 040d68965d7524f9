"""What a step returned is read again as what it was, or refused."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer
from pydantic.alias_generators import to_camel

from hocket.workers.errors import OutputNotJson
from hocket.workers.runtime.journal.typed_values import adapter_of, read_back

WRITTEN = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Picture(BaseModel):
    model_config = WRITTEN

    data: bytes
    parts: list[bytes] = []
    names: dict[str, bytes] = {}
    seen: frozenset[bytes] = frozenset()


class Hexed(BaseModel):
    model_config = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex")

    data: bytes


class Shown(BaseModel):
    """Its bytes are written in one way, and read in another."""

    model_config = ConfigDict(ser_json_bytes="base64")

    data: bytes
    took: timedelta = timedelta(seconds=2)

    @field_serializer("took", when_used="json")
    def _took(self, took: timedelta) -> str:
        return f"{took.total_seconds()} s"


class Order(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    number: int = Field(0, serialization_alias="orderNumber")


class Camel(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, serialize_by_alias=True, populate_by_name=True
    )

    order_number: int = 0


@dataclass
class Basket:
    order: Order
    others: list[Order] = field(default_factory=list)


@pydantic.dataclasses.dataclass(config=WRITTEN)
class Scan:
    data: bytes
    number: int = Field(0, serialization_alias="scanNumber")


@dataclass
class Album:
    pictures: list[Picture]
    scan: Scan


ABCD = Picture(data=b"abcd", parts=[b"abcd", b"\xff"], names={"a": b"abcd"}, seen=frozenset({b"x"}))


@pytest.mark.parametrize(
    "value",
    [
        ABCD,
        Hexed(data=b"abcd"),
        Hexed(data=b"\xff\x00"),
        Shown(data=b"abcd"),
        Order(number=7),
        Camel(order_number=7),
        Basket(Order(number=7), [Order(number=8)]),
        Scan(b"abcd", 7),
        Album([ABCD], Scan(b"\xff", 7)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_annotated_comes_back_as_it_was(value: Any) -> None:
    for given, annotation in ((value, type(value)), ([value], list[type(value)])):  # type: ignore[misc]
        _, read, _ = read_back("get", given, adapter_of(print, annotation))
        assert read == given


@pytest.mark.parametrize(
    ("given", "annotation"),
    [({"data": b"abcd"}, Picture), ([{"data": b"abcd"}], list[Hexed])],
    ids=["base64", "hex"],
)
def test_bytes_that_an_annotation_reads_as_others_are_refused(given: Any, annotation: Any) -> None:
    with pytest.raises(OutputNotJson, match="`get` returned bytes that"):
        read_back("get", given, adapter_of(print, annotation))


def test_bytes_that_are_not_text_are_refused_of_a_model_that_reads_text() -> None:
    with pytest.raises(OutputNotJson, match=r"at `value\.data`"):
        read_back("get", Shown(data=b"\xff"), adapter_of(print, Shown))


@dataclass
class Login:
    user: str
    token: SecretStr


@pytest.mark.parametrize("annotation", [Login, None, Any])
def test_a_secret_in_a_dataclass_is_refused(annotation: Any) -> None:
    with pytest.raises(OutputNotJson, match=r"at `value\.0\.token`, a SecretStr is not stored"):
        read_back("log in", [Login("ada", SecretStr("k"))], adapter_of(print, annotation))


class Unknown:
    """A class that pydantic does not know."""


def iterable() -> Iterable[int]:
    return [1, 2]


def perhaps() -> Iterable[Iterable[int]] | None:
    return [[1], [2]]


def awaitable() -> Awaitable[timedelta]: ...
def coroutine() -> Coroutine[Any, Any, timedelta]: ...
def unknown() -> Unknown: ...
def unknown_later() -> Awaitable[Unknown]: ...
def bare() -> Awaitable: ...  # type: ignore[type-arg]


@pytest.mark.parametrize("function", [iterable, perhaps])
def test_an_iterable_is_read_as_a_list(function: Callable[[], Any]) -> None:
    _, read, _ = read_back("list", function(), adapter_of(function, None))
    assert read == function()


def test_an_item_of_an_iterable_that_does_not_fit_is_refused_at_once() -> None:
    with pytest.raises(OutputNotJson, match="does not accept"):
        read_back("list", [1, "x"], adapter_of(iterable, None))


@pytest.mark.parametrize("function", [awaitable, coroutine])
def test_what_is_awaited_is_read_as_what_it_gives(function: Callable[[], Any]) -> None:
    _, read, _ = read_back("get", timedelta(seconds=2), adapter_of(function, None))
    assert read == timedelta(seconds=2)


@pytest.mark.parametrize("function", [unknown, unknown_later, bare])
def test_an_annotation_that_pydantic_cannot_read_says_nothing(function: Callable[[], Any]) -> None:
    assert read_back("get", {"a": 1}, adapter_of(function, None))[1] == {"a": 1}
    with pytest.raises(pydantic.errors.PydanticSchemaGenerationError):
        adapter_of(function, Unknown)  # said on purpose
