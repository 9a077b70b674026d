#!lua flags=allow-oom
-- Notes what a store has that no server has met before: one that has restarted, or that has taken the place of another. Each
-- server calls this before anything else, so the first one finds the store as it came.
--
-- Returns what the store had when it was first met: the newest log id, the id of the newest fact, and the milliseconds of its
-- clock since 1970.
--
-- KEYS[1]  last
-- KEYS[2]  met:<generation>
-- KEYS[3]  facts
-- ARGV[1]  milliseconds that this is remembered
local last, met, facts = KEYS[1], KEYS[2], KEYS[3]
local call = redis.call

if call('HSETNX', met, 'from', call('GET', last) or '0') == 1 then
  local newest = call('XREVRANGE', facts, '+', '-', 'COUNT', 1)[1]
  local now = call('TIME')
  local ms = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
  call('HSET', met, 'facts', newest and newest[1] or '0-0', 'ms', ms)
  call('PEXPIRE', met, ARGV[1])
end
return call('HMGET', met, 'from', 'facts', 'ms')
