from hocket.kit.logs.log_limits import MAX_TROUBLES, Reporting


def test_a_trouble_is_said_once_in_a_while_with_how_often_it_came() -> None:
    now_s = 0.0
    reporting = Reporting(every_s=10.0, clock_s=lambda: now_s)
    said = [reporting.due("a") for _ in range(5)]
    assert said == [1, 0, 0, 0, 0]
    assert reporting.due("b") == 1
    now_s = 10.0
    assert [reporting.due("a"), reporting.due("a")] == [5, 0]


def test_so_many_may_be_said_at_once_and_names_are_bounded() -> None:
    reporting = Reporting(at_once=3, clock_s=lambda: 0.0)
    assert [reporting.due("a") for _ in range(5)] == [1, 1, 1, 0, 0]
    for number in range(10 * MAX_TROUBLES):
        reporting.due(str(number))
    assert len(reporting._troubles) <= MAX_TROUBLES
