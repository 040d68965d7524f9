-- what is parked is loaded by the next takeover, as everything was before
DROP INDEX hocket.run_parked;
DROP INDEX hocket.run_in_memory;
ALTER TABLE hocket.run DROP COLUMN parked_until;
