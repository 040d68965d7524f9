"""OpenAI's Responses API on top of chat completions: requests in, responses and their events out."""
