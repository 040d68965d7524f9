"""The life of a process: settings, secrets, configuration, clock, health, limits, and its end."""
