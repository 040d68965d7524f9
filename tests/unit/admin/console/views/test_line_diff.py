from hocket.admin.console.views.line_diff import MAX_LINES, diff_of


def test_lines_that_are_the_same_are_left_out_but_for_those_around_a_change() -> None:
    left = "\n".join(f"line {n}" for n in range(40))
    right = left.replace("line 20", "other").replace("line 39", "line 39\nmore")

    pairs = diff_of(left, right).pairs

    shown = [(pair.left, pair.right) for pair in pairs if not pair.same]
    assert shown == [("line 20", "other"), (None, "more")]
    assert [pair.gap for pair in pairs if pair.gap] == [17, 13]
    assert len(pairs) == 13


def test_equal_texts_are_the_same_and_long_ones_are_cut() -> None:
    assert diff_of("a\nb", "a\nb").equal
    long = diff_of("x\n" * (MAX_LINES + 1), "y")
    assert long.truncated
    assert len(long.pairs) == MAX_LINES


def test_texts_that_differ_where_they_are_not_compared_are_not_equal() -> None:
    lines = "x\n" * MAX_LINES
    late = diff_of(lines + "a", lines + "b")
    cut = diff_of("x", "x", equal=False)
    assert (late.same, late.equal) == (True, False)
    assert (cut.same, cut.equal) == (True, False)
