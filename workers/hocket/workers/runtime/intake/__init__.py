"""Messages become attempts, are tried alone where they may end their worker, or are given up."""
