-- Tokens of the input that were written to a provider's prompt cache, and their price.
ALTER TABLE hocket.usage
    ADD COLUMN cache_write_tokens       bigint NOT NULL DEFAULT 0 CHECK (cache_write_tokens >= 0),
    ADD COLUMN cache_write_usd_per_mtok numeric;
COMMENT ON COLUMN hocket.usage.cache_write_tokens IS
    'Part of input_tokens, as cached_tokens is: written to the prompt cache, and often dearer than other input.';
