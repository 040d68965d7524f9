-- Node types of somebody's own, as workers described them last: pipelines are checked against them, and
-- people read them, whether a worker runs now or not.

CREATE TABLE hocket.node_type (
    name text NOT NULL,
    version text NOT NULL,
    described jsonb NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    PRIMARY KEY (name, version)
);
COMMENT ON TABLE hocket.node_type IS 'Node types of somebody''s own, as workers described them last.';
