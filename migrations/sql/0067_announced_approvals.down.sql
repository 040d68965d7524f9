DROP INDEX hocket.webhook_delivery_waiting;
