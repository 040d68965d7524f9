"""Many runs at once: submitted by one request, or cancelled and retried in the background."""
