"""A run as a mutable state machine over a compiled plan
(docs/decisions/0015-a-mutable-core-over-compiled-plans.md)."""
