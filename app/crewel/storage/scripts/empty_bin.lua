#!lua flags=allow-oom
-- Removes from the bin for good what was discarded before some time, the oldest first.
--
-- Returns how many it were; or 'fenced' if the server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  dead
-- ARGV[1]  what all keys begin with; dead: is built from it
-- ARGV[2]  how long the bin keeps dead letters, milliseconds
-- ARGV[3]  how many go at most
local node, dead = KEYS[1], KEYS[2]
local base, kept_ms, most = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call

-- include shared/shares.lua

-- include shared/indexes.lua

-- include shared/bin.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local now = call('TIME')
local before = string.format('(%.0f', now[1] * 1000000 + now[2] - kept_ms * 1000)
local old = call('ZRANGEBYSCORE', binned_at, '-inf', before, 'LIMIT', 0, most)
for _, place in ipairs(old) do
  remove_from_bin(place)
end
return #old
