"""What was spent: shown, and who may read it in SQL."""
