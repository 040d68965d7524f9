"""The gist of a plan: what saw rows, and nothing else."""

from bench.reading.plans import gist

PLAN = """\
Sort  (cost=9.1..9.2 rows=4 width=8) (actual rows=3.00 loops=1)
  Sort Key: r.cost_usd DESC
  ->  Append  (cost=0.0..9.0 rows=4 width=8) (actual rows=3.00 loops=1)
        Subplans Removed: 29
        ->  Seq Scan on rollup r  (cost=0.0..1.0 rows=2 width=8) (actual time=0.1..0.2 rows=3.00 loops=1)
              Filter: (NOT (ANY (day = (hashed SubPlan 1).col1)))
        ->  Nested Loop  (cost=0.0..8.0 rows=2 width=8) (actual rows=0.00 loops=1)
              ->  Index Scan using by_start on usage_1 u (actual rows=5.00 loops=1)
              ->  Index Scan using by_run on usage_2 u_1 (actual rows=0.50 loops=10)
              ->  Seq Scan on empty (actual rows=0.00 loops=5)
              ->  Bitmap Heap Scan on usage_3 (actual rows=0.00 loops=1)
                    ->  Bitmap Index Scan on usage_3_idx (actual rows=260.00 loops=1)
              ->  Hash (never executed)
                    ->  Seq Scan on run (never executed)
Planning Time: 1.000 ms
"""


def test_the_gist_of_a_plan_has_the_steps_that_saw_rows() -> None:
    assert list(gist(PLAN.splitlines())) == [
        "Sort: 3",
        "  Seq Scan on rollup: 3",
        "  Nested Loop: 0",
        "    Index Scan using by_start on usage_1: 5",
        "    Index Scan using by_run on usage_2: 5",
    ]
