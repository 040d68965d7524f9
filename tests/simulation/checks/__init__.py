"""What must hold in every play, and the history that it is checked against."""
