"""The worker's runtime: pulls steps, runs attempts, posts their results, and lets go in good order.

When a worker dies, nobody needs to notice: its steps are not acknowledged, so that NATS delivers them
again to another worker after the acknowledgement's time. A step that came back so is suspected of having
ended its worker (`intake/worker_deaths.py`), runs alone then (`intake/probation.py`), and is given up
after too many deliveries (`intake/undeliverable.py`).
"""
