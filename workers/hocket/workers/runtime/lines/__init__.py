"""Lines that handlers log, on their way to those who look at a run."""
