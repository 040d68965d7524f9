ALTER TABLE hocket.usage
    DROP COLUMN cache_write_tokens,
    DROP COLUMN cache_write_usd_per_mtok;
