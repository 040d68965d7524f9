"""`hocket index`: collections of documents for retrieval."""

import typer

app = typer.Typer(help="Index documents for retrieval, list and search them.", no_args_is_help=True)
