"""Steps on their way to the workers, and what gateways are told of the demand to come."""
