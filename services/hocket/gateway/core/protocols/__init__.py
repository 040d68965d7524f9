"""The protocols that backends speak: OpenAI's API, Anthropic's Messages API, and KServe v2 tensors."""
