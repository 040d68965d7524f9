"""The cost of calls: reserving and settling budgets, recording usage, recovering journals."""
