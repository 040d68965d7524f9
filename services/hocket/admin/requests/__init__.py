"""What every request goes through before its endpoint is asked, and how its error is told."""
