-- Traces are derived from the rows of runs, steps, attempts and calls (docs/decisions/0019): nothing ever wrote spans.
SET LOCAL lock_timeout = '5s';

DROP TABLE hocket.span;
