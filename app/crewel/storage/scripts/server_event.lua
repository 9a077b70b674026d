#!lua flags=allow-oom
-- Appends one event of a server, and lets go of those that are older than a day, or too many.
--
-- Returns the entry's id.
--
-- KEYS[1]  server:events
-- ARGV[1]  entries that are kept at most
-- ARGV[2]  how long they are kept, milliseconds
-- ARGV[3]  the entry, JSON
local id = redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[1], '*', 'd', ARGV[3])
local now = tonumber(string.match(id, '^%d+'))
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-0', math.max(now - ARGV[2], 0)))
return id
