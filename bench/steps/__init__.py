"""What a step costs in one part alone, without servers."""
