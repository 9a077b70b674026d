#!lua
-- Appends one group of events, and lets the oldest go if the stream is too large. Its size is an estimate of the store's.
--
-- Returns the entry's id.
--
-- KEYS[1]  events
-- ARGV[1]  bytes of memory that the stream may take, about
-- ARGV[2]  the group, JSON
local events, max_bytes = KEYS[1], tonumber(ARGV[1])
local call = redis.call

local id = call('XADD', events, '*', 'd', ARGV[2])
local bytes = call('MEMORY', 'USAGE', events)
if bytes > max_bytes then
  call('XTRIM', events, 'MAXLEN', math.floor(call('XLEN', events) * max_bytes * 0.9 / bytes))
end
return id
