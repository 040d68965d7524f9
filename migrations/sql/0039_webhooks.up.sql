-- Webhooks: where runs' ends are told, and what was told or is to be.

CREATE TABLE hocket.webhook (
    webhook_id      text        PRIMARY KEY,
    tenant          text        NOT NULL,
    name            text        NOT NULL,
    url             text        NOT NULL,
    description     text        NOT NULL,
    events          text[]      NOT NULL CHECK (cardinality(events) > 0),
    pipelines       text[],
    labels          jsonb       NOT NULL,
    content         boolean     NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,
    disabled_reason text        NOT NULL DEFAULT '',
    secret          bytea       NOT NULL,
    former_secret   bytea,
    former_until    timestamptz,
    failing_since   timestamptz,
    dropped         bigint      NOT NULL DEFAULT 0,
    revision        bigint      NOT NULL DEFAULT 1,
    created_by      text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    changed_by      text        NOT NULL,
    changed_at      timestamptz NOT NULL DEFAULT now(),
    enabled_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant, name),
    CHECK ((former_secret IS NULL) = (former_until IS NULL))
);
CREATE INDEX webhook_recent ON hocket.webhook (tenant, created_at DESC, webhook_id DESC);
COMMENT ON TABLE hocket.webhook IS 'Where runs'' ends, and approvals that wait, are told by HTTP.';
COMMENT ON COLUMN hocket.webhook.secret IS
    'Encrypted with a key that follows from HOCKET_CAPABILITY_KEY, or from the platform''s own.';
COMMENT ON COLUMN hocket.webhook.dropped IS 'Events that were not kept, because too many waited.';

CREATE TABLE hocket.webhook_delivery (
    webhook_id   text        NOT NULL REFERENCES hocket.webhook ON DELETE CASCADE,
    message_id   text        NOT NULL,
    tenant       text        NOT NULL,
    event        text        NOT NULL,
    run_id       text,
    step         text,
    body         text        NOT NULL,
    state        text        NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead')),
    attempts     integer     NOT NULL DEFAULT 0,
    next_at      timestamptz NOT NULL,
    leased_until timestamptz NOT NULL DEFAULT '-infinity',
    created_at   timestamptz NOT NULL,
    tried_at     timestamptz,
    last_status  integer,
    last_error   text        NOT NULL DEFAULT '',
    PRIMARY KEY (webhook_id, message_id)
);
CREATE INDEX webhook_delivery_due ON hocket.webhook_delivery (webhook_id, next_at) WHERE state = 'pending';
CREATE INDEX webhook_delivery_recent
    ON hocket.webhook_delivery (webhook_id, created_at DESC, message_id DESC);
CREATE INDEX webhook_delivery_of_run ON hocket.webhook_delivery (run_id);
CREATE INDEX webhook_delivery_old ON hocket.webhook_delivery (created_at);
COMMENT ON TABLE hocket.webhook_delivery IS 'What was told to webhooks, or is to be; those that are dead are tried no more.';
