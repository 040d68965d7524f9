-- The key of the capabilities by which dispatched steps are answered (docs/explanation/forgery.md), where no setting
-- gives one: made once, by whoever asks first.
CREATE TABLE hocket.platform_key (
    one     boolean     PRIMARY KEY DEFAULT true CHECK (one),
    key     bytea       NOT NULL CHECK (octet_length(key) >= 32),
    made_at timestamptz NOT NULL DEFAULT now()
);
REVOKE ALL ON hocket.platform_key FROM PUBLIC;
