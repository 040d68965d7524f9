"""Steps on their way to the workers, and the expected demand that gateways are told of."""
