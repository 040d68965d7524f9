"""Chaos: a load of mixed pipelines on the real platform while its parts are killed, stopped and
rewound, followed by a verdict. `make chaos MINUTES=5 SEED=1`; docs/explanation/chaos.md."""
