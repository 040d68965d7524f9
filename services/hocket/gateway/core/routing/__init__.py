"""The choice of a replica: breakers, queues, history, and what each has in its KV cache."""
