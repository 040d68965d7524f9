"""The worker's runtime: pulls steps, runs attempts, posts their results, and shuts down cleanly.

When a worker dies, its steps go to other workers: `intake/after_worker_death.py` describes how.
"""
