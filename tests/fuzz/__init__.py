"""A fuzzer of messages: it writes mutated and forged ones on every subject, stream and bucket of a
running platform, while runs of others pass (docs/explanation/forgery.md)."""
