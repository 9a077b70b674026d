#!lua flags=allow-oom
-- Lets the oldest facts go if they take too much memory: down to nine tenths of the bound, so that this is seldom. The size is
-- an estimate of the store's.
--
-- Returns how many have gone.
--
-- KEYS[1]  facts
-- ARGV[1]  bytes of memory that the stream may take, about
local facts, max_bytes = KEYS[1], tonumber(ARGV[1])
local call = redis.call

local bytes = call('MEMORY', 'USAGE', facts) or 0
if bytes <= max_bytes then
  return 0
end
return call('XTRIM', facts, 'MAXLEN', math.floor(call('XLEN', facts) * max_bytes * 0.9 / bytes))
