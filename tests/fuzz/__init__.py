"""A fuzzer of messages: it publishes mutated and forged ones on every subject, stream and bucket of a
running platform while ordinary runs are in progress (docs/explanation/forgery.md)."""
