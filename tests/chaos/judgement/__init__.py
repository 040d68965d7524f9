"""The verdict on a play, from evidence outside the coordinator's memory.

The evidence is the database, the stream of public facts together with what listeners heard, and the
journals of workers and models.

Rules (each violation names its rule and what broke it):
- `lost`: an accepted task has no run.
- `running`: a run, a sub-run or a step of an ended run has not ended.
- `wrong-end`: a run's status or output is not what its pipeline implies.
- `two-ends`: two different ends of a run were published, or its end is in EVENTS twice.
- `untold`: no end of an ended run was published; `mistold`: published and stored ends differ.
- `unexecuted`: a step succeeded although no worker's journal has this attempt, from begin to end.
- `attempts`: a step did not reach its number of attempts, or a failed attempt has no row.
- `path`: an ended run has no critical path, or one that does not add up to its duration.
- `unbooked`, `invented`, `made-twice`: what a model metered is not in the ledger; no model metered what
  a row of the ledger says; one gateway process made a call twice while it remembered the reply.
- `misbooked`, `mispriced`: for a call that an engine metered, the ledger has other tokens, or a cost
  that is not the configured price of its tokens; `lost-money`: what an engine metered is in no row, and
  no process that could have booked it died; `left-estimated`: a row is still estimated although the
  answer arrived; `estimates`: the other estimates are off by more than a tenth in total.
- `share`: tokens or money that the reports assign to a pipeline or customer are not those of its own
  calls.
- `done-twice`: a handler repeated what was already in its journal.
- `uncalled`, `called-twice`: what a handler calls is no step of its run, or several steps; `unpaid`,
  `paid-twice`: a called step called no model, or repeated a call that was already in its journal.
- `dead`: something became a dead letter; `left`: a work queue is not empty.

Calls that were in progress when their gateway was killed may be missing or repeated:
docs/explanation/model-calls.md. They are counted as `died with their gateway`.
"""
