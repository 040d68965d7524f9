"""What values are checked for wherever they come in, and how faults are told."""
