"""The rules of runs: a mutable state machine over compiled plans
(docs/decisions/0015-a-mutable-core-over-compiled-plans.md), the commands that it gives to the shell,
and the bounds that a run is held to."""
