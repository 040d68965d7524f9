"""Code shared by benchmarks: handlers and models for their processes, emulators, load, memory curves."""
