SET LOCAL lock_timeout = '5s';

DROP TYPE hocket.written_outlook;
DROP TYPE hocket.written_attempt;
DROP TYPE hocket.written_step;
DROP TYPE hocket.written_run;
