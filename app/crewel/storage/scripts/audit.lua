#!lua flags=allow-oom
-- Appends one entry of the audit, and lets the oldest go if there are too many.
--
-- Returns the entry's id.
--
-- KEYS[1]  audit
-- ARGV[1]  entries that are kept
-- ARGV[2]  the entry, JSON
return redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[1], '*', 'd', ARGV[2])
