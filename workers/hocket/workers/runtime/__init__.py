"""The worker's runtime: pulls steps, runs attempts, posts their results, and lets go in good order."""
