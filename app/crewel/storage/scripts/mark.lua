#!lua flags=allow-oom
-- Writes, and nothing else. WAIT on a connection waits for what this connection has written: of a step that found everything
-- done, by another connection, it would say at once that the replicas have it. Behind this it waits for all that was before.
--
-- Returns 'OK'.
--
-- KEYS[1]  copied
return redis.call('SET', KEYS[1], '')
