"""How runs are split among arms, and whether an arm does worse than its control."""
