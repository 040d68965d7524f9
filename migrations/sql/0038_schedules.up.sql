-- Tasks that are submitted by the clock: each schedule, and what became of its times.

CREATE TABLE hocket.schedule (
    schedule_id       text             PRIMARY KEY,
    tenant            text             NOT NULL,
    name              text             NOT NULL,
    description       text             NOT NULL,
    cron              text             NOT NULL,
    time_zone         text             NOT NULL,
    jitter_s          double precision NOT NULL CHECK (jitter_s >= 0),
    catch_up          text             NOT NULL CHECK (catch_up IN ('none', 'one', 'all')),
    catch_up_window_s double precision NOT NULL CHECK (catch_up_window_s > 0),
    overlap           text             NOT NULL
        CHECK (overlap IN ('allow', 'skip', 'cancel_running', 'buffer_one')),
    task              jsonb            NOT NULL,
    time_field        text,
    paused            boolean          NOT NULL DEFAULT false,
    pause_reason      text             NOT NULL DEFAULT '',
    revision          bigint           NOT NULL DEFAULT 1,
    planned_at        timestamptz,
    due_at            timestamptz,
    created_by        text             NOT NULL,
    created_at        timestamptz      NOT NULL DEFAULT now(),
    changed_by        text             NOT NULL,
    changed_at        timestamptz      NOT NULL DEFAULT now(),
    UNIQUE (tenant, name),
    CHECK ((planned_at IS NULL) = (due_at IS NULL))
);
CREATE INDEX schedule_due ON hocket.schedule (due_at) WHERE NOT paused;
CREATE INDEX schedule_recent ON hocket.schedule (tenant, created_at DESC, schedule_id DESC);
COMMENT ON TABLE hocket.schedule IS 'Tasks that are submitted by the clock.';
COMMENT ON COLUMN hocket.schedule.planned_at IS
    'The first time that is not decided yet; null where none follows. due_at is planned_at with its jitter.';
COMMENT ON COLUMN hocket.schedule.revision IS 'Counts changes by people; the ETag of REST.';

CREATE TABLE hocket.schedule_firing (
    firing_id   text        PRIMARY KEY,
    schedule_id text        NOT NULL REFERENCES hocket.schedule ON DELETE CASCADE,
    tenant      text        NOT NULL,
    cause       text        NOT NULL CHECK (cause IN ('on_time', 'caught_up', 'triggered')),
    state       text        NOT NULL
        CHECK (state IN ('pending', 'buffered', 'fired', 'skipped', 'missed', 'failed')),
    planned_at  timestamptz NOT NULL,
    until       timestamptz,
    run_id      text,
    over        boolean     NOT NULL DEFAULT false,
    error       jsonb,
    reason      text        NOT NULL DEFAULT '',
    decided_at  timestamptz NOT NULL,
    fired_at    timestamptz,
    CHECK ((state = 'missed') = (until IS NOT NULL)),
    CHECK ((state = 'fired') = (fired_at IS NOT NULL))
);
CREATE INDEX schedule_firing_recent
    ON hocket.schedule_firing (schedule_id, planned_at DESC, firing_id DESC);
CREATE INDEX schedule_firing_undone
    ON hocket.schedule_firing (schedule_id, planned_at) WHERE state IN ('pending', 'buffered');
CREATE INDEX schedule_firing_open
    ON hocket.schedule_firing (schedule_id) WHERE state = 'fired' AND NOT over;
COMMENT ON TABLE hocket.schedule_firing IS
    'What became of the times of schedules. A missed one stands for all times from planned_at until until.';
COMMENT ON COLUMN hocket.schedule_firing.over IS 'Whether its run is known to have ended.';
