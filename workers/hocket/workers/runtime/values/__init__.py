"""Large values of steps: references and blobs, and what a worker holds of them."""
