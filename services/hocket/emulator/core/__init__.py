"""How an engine spends its time, what it remembers and what it says. No IO, no clock, no dice."""
