"""The built-in model `hocket-extractive`: it selects and cites, it does not generate.

It lets a pipeline run without any model server: it chooses among the queries of a catalog, picks the
sentences of passages and the rows of query results that answer, and says so when none does. All of it
is word counting, deterministic and free of IO; see docs/explanation/extractive.md for what it cannot do.
"""
