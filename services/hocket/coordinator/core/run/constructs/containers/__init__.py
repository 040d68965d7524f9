"""What holds steps of its own: a map its items, a loop its rounds, a race its branches, fallbacks."""
