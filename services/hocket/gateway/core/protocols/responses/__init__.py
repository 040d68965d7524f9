"""OpenAI's Responses API upon chat completions: requests in, responses and their events out."""
