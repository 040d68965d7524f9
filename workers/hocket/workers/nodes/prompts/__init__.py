"""What nodes send to models and read from answers: prompts, evidence, and JSON answers."""
