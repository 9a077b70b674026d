#!lua flags=allow-oom
-- Registers a starting server, unless another one lives: it has taken the log up to `last`, and nothing before is needed by
-- it. A repeated call changes nothing.
--
-- Returns the id up to which the server has taken the log: `last` as it was at the first call. Or, if another server has a
-- lease: its token, what the lease says of its owner, and the milliseconds that it lasts; then nothing was done.
--
-- KEYS[1]  last
-- KEYS[2]  nodes
-- KEYS[3]  node:<token>, the server that starts
-- KEYS[4]  epoch
-- KEYS[5]  lease:<token>
-- ARGV[1]  token
-- ARGV[2]  name of the node
-- ARGV[3]  what all keys begin with; the leases of other servers are built from it
-- ARGV[4]  milliseconds that its own lease lasts; 0: it has none, and asks for none
-- ARGV[5]  what the lease says of its owner, as JSON
-- ARGV[6]...  tokens of servers whose leases do not count
local last, nodes, node, epoch, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, name, base, lasts, owner = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

local known = redis.call('HGET', node, 'cursor')
if known then
  return tonumber(known)
end

if lasts > 0 then
  local dead = {}
  for place = 6, #ARGV do
    dead[ARGV[place]] = true
  end
  for _, other in ipairs(redis.call('SMEMBERS', nodes)) do
    local living = not dead[other] and redis.call('GET', base .. 'lease:' .. other)
    if living then
      return {other, living, redis.call('PTTL', base .. 'lease:' .. other)}
    end
  end
  redis.call('SET', lease, owner, 'PX', lasts)
end

local cursor = redis.call('GET', last) or '0'
local now = redis.call('TIME')
local since = string.format('%.0f', now[1] * 1000000 + now[2])
local number = string.format('%.0f', redis.call('INCR', epoch))
redis.call('HSET', node, 'name', name, 'cursor', cursor, 'low', cursor, 'seq', '0', 'since', since, 'epoch', number)
redis.call('SADD', nodes, token)
return tonumber(cursor)
