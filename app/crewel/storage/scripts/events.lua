#!lua
-- Appends one group of events, and lets the oldest go.
--
-- Returns the entry's id.
--
-- KEYS[1]  events
-- ARGV[1]  most entries that the stream keeps, about
-- ARGV[2]  the group, JSON
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'd', ARGV[2])
