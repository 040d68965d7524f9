"""Anthropic's Messages API for calls in OpenAI's format: requests out, replies and streams back."""
