-- Run once by a new Postgres; Hocket's own tables come with `hocket migrate`.
CREATE EXTENSION IF NOT EXISTS vector;
