"""The parts of the platform, for operators: tenants, workers, step queues and partitions."""
