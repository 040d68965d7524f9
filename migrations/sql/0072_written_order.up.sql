-- Runs use a pipeline as it was written: jsonb sorts the keys of its objects, and writes 1e22 as an integer.

ALTER TABLE hocket.pipeline ADD COLUMN document text;
COMMENT ON COLUMN hocket.pipeline.document IS
    'The spec with its keys in the order in which they were written, which jsonb does not keep: what runs use. Null for versions applied before there was this column; their runs use spec.';
