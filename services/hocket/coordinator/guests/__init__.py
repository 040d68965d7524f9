"""Posts of workers with a key: taken from streams of their own, rate-limited per key, and handed on."""
