"""Which prompts and answers are kept, and how. Pure."""
