"""The life of a process: settings, configuration, telemetry, clock, and its end."""
