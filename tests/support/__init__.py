"""What tests of several rooms share: rigs, handlers of worker processes, stand-ins, data."""
