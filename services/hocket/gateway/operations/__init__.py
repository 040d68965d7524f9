"""What operators want of replicas: drained, warm, reset; the same at every gateway."""
