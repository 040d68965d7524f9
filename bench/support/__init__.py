"""What benchmarks share: handlers and models of their processes, emulators, memory curves."""
