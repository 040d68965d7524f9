"""The protocols that backends speak: OpenAI's API, and tensors of KServe v2."""
