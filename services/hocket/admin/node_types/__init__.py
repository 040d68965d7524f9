"""Which node types there are, what they take and give, and which of them workers run now."""
