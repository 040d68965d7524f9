"""What a step, or the key of a request, costs in one part alone, without servers."""
