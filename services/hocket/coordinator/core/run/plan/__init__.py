"""What is known before a run begins: compiled nodes, their inputs, what to expect of them."""
