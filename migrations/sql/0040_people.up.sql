-- People who signed in to the console at an identity provider, as bearers that can be revoked.

ALTER TABLE hocket.api_key
    ADD COLUMN subject text,
    ADD COLUMN groups text[],
    ADD CONSTRAINT api_key_person CHECK ((subject IS NULL) = (groups IS NULL)) NOT VALID;
ALTER TABLE hocket.api_key VALIDATE CONSTRAINT api_key_person;

CREATE UNIQUE INDEX api_key_subject_idx ON hocket.api_key (subject) WHERE subject IS NOT NULL;

COMMENT ON COLUMN hocket.api_key.subject IS 'Of a person who signed in at an identity provider; the row has no right of its own, and its secret was told to nobody.';
COMMENT ON COLUMN hocket.api_key.groups IS 'The groups of that person which had a role at the latest sign-in.';
