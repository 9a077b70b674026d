#!lua flags=allow-oom
-- Removes from the log what no server needs any more: all up to the lowest `low`, a part at a time. What the record of a server
-- does not say is not guessed: then nothing is removed.
--
-- Returns the number of entries removed: there may be more to remove if that is more than half of what was allowed. Or 'fenced'
-- if this server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  nodes
-- KEYS[3]  log
-- ARGV[1]  what all keys begin with; node: and left: of the others are built from it
-- ARGV[2]  entries to remove at most, about
local node, nodes, log = KEYS[1], KEYS[2], KEYS[3]
local base, most = ARGV[1], ARGV[2]

local lowest = tonumber(redis.call('HGET', node, 'low'))
if not lowest then
  return 'fenced'
end
for _, token in ipairs(redis.call('SMEMBERS', nodes)) do
  local low = redis.call('HGET', base .. 'node:' .. token, 'low') or redis.call('HGET', base .. 'left:' .. token, 'low')
  low = tonumber(low or 0)
  lowest = math.min(lowest, low)
end
local first = string.format('%.0f-0', lowest + 1)
-- Whole blocks of entries, as many as are allowed; and once all of them have gone, what is left of the last one.
local removed = redis.call('XTRIM', log, 'MINID', '~', first, 'LIMIT', most)
if removed <= most / 2 then
  removed = removed + redis.call('XTRIM', log, 'MINID', first)
end
return removed
