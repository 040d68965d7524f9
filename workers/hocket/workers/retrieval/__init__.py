"""Documents indexed in Postgres, and hybrid search over them."""
