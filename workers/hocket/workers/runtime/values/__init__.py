"""Large values of steps: references, blobs, and the memory that a worker reserves for them."""
