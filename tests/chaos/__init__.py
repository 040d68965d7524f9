"""Chaos: a load of mixed pipelines on the real platform while its parts are killed, stopped, and set
back, and a judgement of what came of it. `make chaos MINUTES=5 SEED=1`; docs/explanation/chaos.md."""
