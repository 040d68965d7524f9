"""What Hocket itself costs: runs per second, CPU and memory, as runs, workers and graphs grow."""
