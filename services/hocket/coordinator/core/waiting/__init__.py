"""Steps that wait: for time, for signals, for their run's parent, and what a deadline does to them."""
