"""The runs of a partition: accepted, held in memory, loaded again, ended and told of."""
