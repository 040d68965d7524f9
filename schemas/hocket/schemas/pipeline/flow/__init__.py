"""Flow control by key: a pipeline's rules for when its runs start."""
