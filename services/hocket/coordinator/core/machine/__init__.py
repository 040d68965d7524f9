"""The new core: a run as a mutable state machine over a compiled plan
(docs/decisions/0012-a-mutable-core.md).

It stands beside `core/run`, which the coordinator uses and which is its oracle (`tests/oracle`),
until both agree on everything.
"""
