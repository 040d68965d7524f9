"""The pipeline spec: what users write (`spec`), the expressions in it (`expressions`), and what the
coordinator runs (`plan`). Pure: the admin API and the CLI check a pipeline with the same code that
the coordinator runs it with."""
