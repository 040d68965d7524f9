"""What the platform is made of, for operators: its tenants, workers, queues of steps and partitions."""
