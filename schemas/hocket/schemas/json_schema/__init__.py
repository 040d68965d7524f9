"""JSON Schema (2020-12) in counted steps: schemas are held to bounds when a pipeline is applied, values
to a budget when they are checked, and patterns run in linear time. `format` checks nothing."""
