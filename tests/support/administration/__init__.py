"""What tests of administration over REST share."""
