"""The built-in model `hocket-extractive`: it selects and cites, but does not generate text.

It lets a pipeline run without any model server: it chooses among the queries of a catalog, picks the
sentences of passages and the rows of query results that answer a question, and says so if none does. It
only counts words, is deterministic and does no IO; docs/explanation/extractive.md says what it cannot
do.
"""
