"""Reciprocal rank fusion against figures worked out by hand."""

import pytest

from hocket.workers.retrieval.fusion import fuse


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = fuse({"text": ["a", "b", "c"], "vector": ["c", "a"]})
    assert [one.item for one in fused] == ["a", "c", "b"]
    assert [one.score for one in fused] == pytest.approx([1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62])
    assert fused[0].ranks == {"text": 1, "vector": 2}


def test_equal_scores_keep_the_order_of_first_appearance() -> None:
    assert [one.item for one in fuse({"x": ["a"], "y": ["b"]})] == ["a", "b"]


def test_an_item_counts_once_in_a_ranking() -> None:
    assert fuse({"x": ["a", "b", "a"]})[0].score == pytest.approx(1 / 61)


def test_no_rankings_give_nothing() -> None:
    assert fuse({}) == []
