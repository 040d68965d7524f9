"""The pure core: a run's state and the rule that moves it. No clock, no network, no dice.

`apply(run, event, now_ms, forecast)` changes the run in place and returns the rows that changed and
the commands that the shell around it carries out. The log alone explains the state: the same events
give the same run.
"""
