-- The extension stays: other schemas may use it.
DROP SCHEMA retrieval CASCADE;
