"""Code that tests of several folders share: rigs, handlers of worker processes, stand-ins, data."""
