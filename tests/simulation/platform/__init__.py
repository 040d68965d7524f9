"""What is played: the platform's processes, pipelines, users, and faults."""
