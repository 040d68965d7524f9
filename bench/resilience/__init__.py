"""What becomes of runs while servers, coordinators or models are away, and while runs are hostile."""
