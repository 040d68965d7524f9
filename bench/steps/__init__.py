"""What a step, or the key of a request, costs in one component alone, without servers."""
