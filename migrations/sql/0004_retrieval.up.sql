-- Indexed documents: collections, their documents with the extracted text, and chunks of it.
CREATE EXTENSION IF NOT EXISTS vector;

CREATE SCHEMA retrieval;

CREATE TABLE retrieval.collection (
    collection_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text        NOT NULL UNIQUE CHECK (name <> ''),
    embedding_model text        NOT NULL DEFAULT '',
    dimension       integer     CHECK (dimension BETWEEN 1 AND 16000),
    created_at      timestamptz NOT NULL DEFAULT now(),
    CHECK ((embedding_model = '') = (dimension IS NULL))
);
COMMENT ON TABLE retrieval.collection IS
    'Named sets of documents; with an embedding model, all their chunks have vectors of one dimension.';

CREATE TABLE retrieval.document (
    document_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    collection_id bigint      NOT NULL REFERENCES retrieval.collection ON DELETE CASCADE,
    root          text        NOT NULL,
    source        text        NOT NULL,
    title         text        NOT NULL,
    media_type    text        NOT NULL,
    content_hash  text        NOT NULL,
    recipe        text        NOT NULL,
    text          text        NOT NULL,
    indexed_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (collection_id, root, source)
);
COMMENT ON TABLE retrieval.document IS
    'One file as it was extracted. `root` is the indexed folder, `source` the path in it; `recipe` says how it was extracted, cut and embedded. Offsets of chunks count characters of `text`.';

CREATE TABLE retrieval.chunk (
    document_id   bigint   NOT NULL REFERENCES retrieval.document ON DELETE CASCADE,
    ordinal       integer  NOT NULL CHECK (ordinal >= 0),
    collection_id bigint   NOT NULL REFERENCES retrieval.collection ON DELETE CASCADE,
    chunk_id      text     NOT NULL,
    start_offset  integer  NOT NULL CHECK (start_offset >= 0),
    end_offset    integer  NOT NULL CHECK (end_offset > start_offset),
    heading_path  text[]   NOT NULL,
    heading       text     NOT NULL,
    text          text     NOT NULL,
    search        tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('english'::regconfig, heading), 'A')
        || setweight(to_tsvector('english'::regconfig, text), 'D')
    ) STORED,
    embedding     vector,
    PRIMARY KEY (document_id, ordinal)
);
CREATE INDEX chunk_search ON retrieval.chunk USING gin (search);
CREATE INDEX chunk_collection ON retrieval.chunk (collection_id, chunk_id);
COMMENT ON TABLE retrieval.chunk IS
    'Pieces of documents that are searched and cited. `heading` is title and heading path, for search. Each collection with vectors of up to 2,000 dimensions has an HNSW index of its own.';
