"""The judgement of a play, from what stands outside of the coordinator's memory: the database, the
stream of public facts with what listeners heard, and the journals of workers and models.

Rules (each violation names its rule and what broke it):
- `lost`: an accepted task has no run.
- `running`: a run, a sub-run or a step of an ended run has not ended.
- `wrong-end`: a run ended otherwise, or with another output, than its pipeline says.
- `two-ends`: two different ends were told of a run, or its end stands twice in EVENTS.
- `untold`: an ended run whose end nobody was told; `mistold`: told and stored ends differ.
- `unexecuted`: a step succeeded that no worker's journal has at this attempt, from begin to end.
- `attempts`: a step has not come to its number of attempts, or one that failed has no row.
- `path`: an ended run has no critical path, or one that does not sum to its time.
- `unbooked`, `invented`, `made-twice`: what a model metered is not in the ledger; a row of the ledger
  that no model metered; one gateway process metered a call twice.
- `misbooked`, `mispriced`: of a call that an engine metered the ledger has other tokens, or another
  cost than the configured price of those; `lost-money`: what an engine metered is in no row, and nobody
  who could have booked it died; `left-estimated`: a row is still estimated where the answer came;
  `estimates`: those of the others are off by more than a tenth in sum.
- `share`: tokens or money of a pipeline or customer in the reports are not those of its own calls.
- `done-twice`: a handler did again what stood in its journal.
- `uncalled`, `called-twice`: what a handler calls is no step of its run, or is several of them;
  `unpaid`, `paid-twice`: a called step asked no model, or asked again for what stood in its journal.
- `dead`: something became a dead letter; `left`: a work queue is not empty.

Calls that were under way when their gateway was killed may be missing or made again:
docs/explanation/model-calls.md. They are counted as `died with their gateway`.
"""
