"""The pure core: a run's state and the rules that change it. No clock, no network, no randomness.

`apply(run, event, now_ms, forecast)` changes the run in place and returns the rows that changed and
the commands that the shell around it carries out. The log alone determines the state: the same
events give the same run.
"""
