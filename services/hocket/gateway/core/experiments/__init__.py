"""How runs are split over arms, and whether an arm does worse than its control."""
