"""Which prompts and answers are kept, and how; the files in them. Pure."""
