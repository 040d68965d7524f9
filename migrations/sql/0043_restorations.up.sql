-- When this database was made from a backup, so that whoever asks for a run that came later is told.

CREATE TABLE hocket.restoration (
    restored_at  timestamptz PRIMARY KEY DEFAULT now(),
    backup_began_at timestamptz NOT NULL,
    hocket       text NOT NULL
);
COMMENT ON TABLE hocket.restoration IS
    'The backups that this database was restored from: what was accepted after backup_began_at and before restored_at may be missing.';
COMMENT ON COLUMN hocket.restoration.hocket IS 'The release that made the backup.';
