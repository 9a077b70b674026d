#!lua flags=allow-oom
-- Forgets the name of a session that was not stored, and has ended.
--
-- Returns how many there were.
--
-- KEYS[1]  unstored:<token>, of the node that had the session
-- ARGV[1]  name of the session
return redis.call('ZREM', KEYS[1], ARGV[1] .. ' ptp', ARGV[1] .. ' -')
