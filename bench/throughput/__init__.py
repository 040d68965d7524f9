"""What Hocket itself costs: runs a second, CPU and memory, as runs, workers and graphs grow."""
