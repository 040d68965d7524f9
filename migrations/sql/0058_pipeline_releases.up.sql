-- Which version of a pipeline its runs take that name none. A pipeline without a row: the newest one.

CREATE TABLE hocket.pipeline_release (
    tenant         text        NOT NULL,
    name           text        NOT NULL,
    active_version integer     CHECK (active_version > 0),
    former_version integer     CHECK (former_version > 0),
    canary_version integer     CHECK (canary_version > 0),
    canary_share   double precision CHECK (canary_share > 0 AND canary_share < 1),
    canary_since   timestamptz,
    canary_rule    jsonb,
    archived_at    timestamptz,
    last_version   integer     NOT NULL DEFAULT 0 CHECK (last_version >= 0),
    revision       bigint      NOT NULL DEFAULT 1,
    changed_at     timestamptz NOT NULL DEFAULT now(),
    changed_by     text        NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, name),
    CHECK ((canary_version IS NULL) = (canary_share IS NULL)),
    CHECK ((canary_version IS NULL) = (canary_since IS NULL))
);
CREATE INDEX pipeline_release_canaries ON hocket.pipeline_release (canary_since) WHERE canary_version IS NOT NULL;
COMMENT ON TABLE hocket.pipeline_release IS
    'What was chosen for a pipeline: its active version, a canary, or that it takes no new runs.';
COMMENT ON COLUMN hocket.pipeline_release.last_version IS
    'The last number of a pipeline that was deleted: versions that come again have other numbers.';
