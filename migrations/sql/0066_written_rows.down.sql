DROP TYPE hocket.written_outlook;
DROP TYPE hocket.written_attempt;
DROP TYPE hocket.written_step;
DROP TYPE hocket.written_run;
