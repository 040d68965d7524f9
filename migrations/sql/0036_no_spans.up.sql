-- Traces are derived from the rows of runs, steps, attempts and calls (docs/decisions/0019): nothing ever wrote spans.

DROP TABLE hocket.span;
