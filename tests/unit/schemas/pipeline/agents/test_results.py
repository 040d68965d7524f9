"""Results of an agent's tools that are too large for one message."""

import json
from typing import Any

import pytest

from hocket.schemas.pipeline.agents.results import MAX_RESULTS_BYTES, fitted

MOST = 20_000


def results(*outputs: Any) -> dict[str, dict[str, Any]]:
    return {f"t_{i}": {"output": one, "error": None} for i, one in enumerate(outputs)}


def cut(given: dict[str, dict[str, Any]], most: int = MOST, remote: Any = ()) -> list[Any]:
    """Return the outputs that fit, as they are after a replay, too."""
    once = fitted(given, most, remote)
    assert once == fitted(json.loads(json.dumps(given)), most, remote)
    assert len(json.dumps(once, ensure_ascii=False).encode()) <= MAX_RESULTS_BYTES + 10_000
    assert list(once) == list(given)
    return [one["output"] for one in once.values()]


def test_results_that_fit_are_not_changed() -> None:
    given = results("x" * 190_000, {"rows": ["y" * 190_000]}, None, 5)
    assert fitted(given, 100, {"t_1"}) == given


def test_of_results_that_do_not_fit_the_long_ones_are_cut_to_what_a_model_gets() -> None:
    outputs = cut(results(*["x" * 400_000] * 3, "short", {"n": 1}))
    assert outputs[3:] == ["short", {"n": 1}]
    for one in outputs[:3]:
        assert len(one) <= MOST, "so that it is not cut again"
        assert one.startswith("x" * (MOST - 100))
        assert one.endswith("\n(cut: it has 400000 characters)")


@pytest.mark.parametrize("letter", ["x", "\x01", "\U0001f600", '"'])
@pytest.mark.parametrize("most", [100, MOST, 1_000_000])
def test_as_many_results_as_there_may_be_fit_whatever_they_hold(letter: str, most: int) -> None:
    many = [letter * 500_000, [letter] * 100_000, {letter: letter * 400_000}]
    outputs = cut(results(*(many * 11)[:32]), most)
    assert all(isinstance(one, str) and "\n(cut: it has " in one for one in outputs)
    longest = max(map(len, outputs))
    assert longest <= most
    assert most > MOST or longest > most / 32, "no more is cut than is necessary"


def test_data_is_cut_as_its_json_and_that_of_a_server_as_its_text() -> None:
    data = {"text": "a" * 250_000, "data": {"result": "a" * 250_000}}
    little = {"text": "ok", "data": ["b" * 250_000]}
    rows = [{"n": 1} for _ in range(50_000)]
    told = cut(results(data, little, rows, data), MOST, {"t_0", "t_1", "t_2"})
    assert told[0].startswith("aaa")
    assert told[1].startswith('{"text":"ok","data":["bbb')
    assert told[2].startswith('[{"n":1},{"n":1}')
    assert told[3].startswith('{"text":"aaa')


def test_of_a_long_error_the_code_and_what_a_model_gets_of_its_text_remain() -> None:
    error = {"code": "x", "message": "m" * 300_000, "details": {"y": "z" * 300_000}}
    told = fitted({"t": {"output": None, "error": error}}, MOST, ())
    assert told == {"t": {"output": None, "error": {"code": "x", "message": "m" * 2_000}}}


def stored(letter: str = "a", size: int = 600_000) -> dict[str, Any]:
    return {"$blob": letter * 64, "size": size, "type": "text"}


@pytest.mark.parametrize("remote", [(), ("t_0", "t_1")])
def test_a_stored_text_beside_inline_ones_stays_a_reference(remote: Any) -> None:
    pages = [stored(), *(letter * 150_000 for letter in "bcd")]
    first, last = cut(results({"pages": pages}, {"pages": pages[::-1]}), MOST, remote)
    assert first == {"pages": [stored(), "(cut: it has 4 items)"]}, "the model sees only the first"
    (page, note) = last["pages"]
    assert page.startswith("d" * (MOST - 100))
    assert page.endswith("\n(cut: it has 150000 characters)")
    assert note == "(cut: it has 4 items)"
    fields = {"a": "x" * 10_000, "b": stored(), "c": ["y"] * 100_000}
    assert cut(results(fields, fields), MOST)[0] == {
        "a": "x" * 10_000,
        "b": stored(),
        "(cut)": "it has 3 fields",
    }
    small = {"a": stored(size=16_384), "b": {"c": "x" * 10_000}, "d": ["y" * 400_000]}
    kept = cut(results(small))[0]
    assert (kept["a"], kept["b"], kept["d"][0][:5]) == (small["a"], small["b"], "yyyyy")


def test_an_output_that_is_stored_as_a_whole_is_never_cut() -> None:
    outputs = cut(results(stored(), *["x" * 400_000] * 30), 100)
    assert outputs[0] == stored()


def test_the_text_of_a_server_says_enough_beside_stored_data() -> None:
    assert cut(results({"text": "a" * 450_000, "data": stored()}), MOST, {"t_0"})[0][:3] == "aaa"
    text = {"text": stored("a"), "data": {"result": "b" * 400_000}}
    assert cut(results(text), MOST, {"t_0"}) == [{"text": stored("a"), "(cut)": "it has 2 fields"}]


@pytest.mark.parametrize("most", [100, MOST, 1_000_000])
@pytest.mark.parametrize(
    "odd",
    [
        [stored(size=16_384)] * 3_000,
        [stored(), *[1] * 200_000],
        [*["\x01"] * 50_000, stored()],
        {"k" * 400_000: stored()},
        {"$blob": "a" * 400_000, "size": 1, "type": "text"},
        {"$blob": "a" * 64, "size": 1, "type": "text", "more": "b" * 400_000},
        {"$blob": "a" * 64, "size": 10**100, "type": ["b" * 400_000]},
        [[[[stored(size=0), "\U0001f600" * 80_000]]], {"a": [{}] * 100_000}],
    ],
    ids=["many", "numbers", "escaped", "name", "hash", "more", "type", "nested"],
)
def test_whatever_is_beside_references_fits(odd: Any, most: int) -> None:
    assert all(cut(results(*[odd] * 32), most))
