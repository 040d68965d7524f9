"""Code shared by the tests of administration over REST."""
