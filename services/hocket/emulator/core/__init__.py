"""How an engine spends its time, what it caches and what it says. No IO, no clock, no randomness."""
