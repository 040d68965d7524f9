"""The pure core: a run's state and the rule that moves it. No clock, no network, no dice.

`decide(run, event, now_ms=..., plan=..., outlook=...)` returns the new run and the commands that the
shell around it carries out. The log alone explains the state: the same events give the same run.
"""
