"""Two cores, one log: whatever the coordinator's core does in a play, the new one must do, too."""
