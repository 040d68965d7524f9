"""What workers with a key post: taken from streams of their own, bounded for each key, and handed on."""
