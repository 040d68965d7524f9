"""A whole platform on one machine: its processes, its folder, its demo."""
