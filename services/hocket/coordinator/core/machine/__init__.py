"""The new core: a run as a mutable state machine over a compiled plan
(docs/decisions/0015-a-mutable-core-over-compiled-plans.md).

It stands beside `core/run`, which the coordinator uses and which is its oracle
(`tests/simulation/oracle`), until both agree on everything.
"""
