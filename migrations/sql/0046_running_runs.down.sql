DROP INDEX hocket.run_running;
