DROP TABLE hocket.webhook_delivery;
DROP TABLE hocket.webhook;
