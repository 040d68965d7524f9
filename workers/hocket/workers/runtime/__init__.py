"""The worker's runtime: pulls steps, runs attempts, posts their results, and lets go in good order.

When a worker dies, its steps go to other workers: `intake/after_worker_death.py` tells how.
"""
