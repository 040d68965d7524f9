"""What nodes ask models, and what they read of answers: prompts, evidence, answers as JSON."""
