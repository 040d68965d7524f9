"""How a run ends: every way to a terminal run, its critical path, and which ends may be unannounced."""
