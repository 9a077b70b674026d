#!lua flags=allow-oom
-- Writes a number, and nothing else: all that the connection has written before is in a store that has it (confirmation.py).
--
-- Returns 'OK'.
--
-- KEYS[1]  copied:<connection>
-- ARGV[1]  number, higher than that of the mark before
-- ARGV[2]  milliseconds that it is kept
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
