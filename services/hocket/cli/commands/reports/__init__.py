"""Commands that show spending, and manage who may read it in SQL."""
