"""What is read: reports in SQL, and lists of runs."""
