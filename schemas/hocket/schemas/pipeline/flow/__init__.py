"""Flow control by key: what a pipeline says of when its runs start."""
