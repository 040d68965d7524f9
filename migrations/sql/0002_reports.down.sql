-- The role stays: it may be granted to users and is shared by all databases of the server.
DROP SCHEMA report CASCADE;
