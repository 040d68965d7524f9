"""Places at replicas: who gets one, who waits, and how gateways share limits."""
