"""Child processes: how they are launched, kept alive, and ended."""
