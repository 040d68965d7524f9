"""The rules of runs: a mutable state machine over compiled plans
(docs/decisions/0015-a-mutable-core-over-compiled-plans.md), the commands it issues to the shell,
and the bounds on a run's size."""
