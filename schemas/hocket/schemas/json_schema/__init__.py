"""JSON Schema (2020-12), checked in counted steps: schemas are bounded when a pipeline is applied,
checks of values have a budget, and patterns run in linear time. `format` checks nothing."""
