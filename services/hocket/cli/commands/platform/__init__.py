"""Commands that start, look after and look into a platform's processes."""
