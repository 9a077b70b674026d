#!lua flags=allow-oom
-- Registers a starting server, unless another one lives: it has taken the log up to `last`, and nothing before is needed by
-- it. A repeated call changes nothing. A server with a tag is a node: it shares the store with living nodes, and with no other
-- server.
--
-- Returns the id up to which the server has taken the log: `last` as it was at the first call. Or, if another server has a
-- lease: its token, what the lease says of its owner, and the milliseconds that it lasts; then nothing was done.
--
-- KEYS[1]  last
-- KEYS[2]  nodes
-- KEYS[3]  node:<token>, the server that starts
-- KEYS[4]  epoch
-- KEYS[5]  lease:<token>
-- KEYS[6]  tags
-- KEYS[7]  secret
-- ARGV[1]  token
-- ARGV[2]  name of the node
-- ARGV[3]  what all keys begin with; node: and lease: of other servers are built from it
-- ARGV[4]  milliseconds that its own lease lasts; 0: it has none, and asks for none
-- ARGV[5]  what the lease says of its owner, as JSON
-- ARGV[6]  tag of the node; empty: the server shares the store with no other one
-- ARGV[7]  where other nodes reach it
-- ARGV[8]  the secret of the nodes, unless there is one
-- ARGV[9]...  tokens of servers whose leases do not count
local last, nodes, node, epoch, lease, tags, secret = unpack(KEYS)
local token, name, base, lasts, owner, tag, link = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]

local known = redis.call('HGET', node, 'cursor')
if known then
  return tonumber(known)
end

if lasts > 0 then
  local dead = {}
  for place = 9, #ARGV do
    dead[ARGV[place]] = true
  end
  for _, other in ipairs(redis.call('SMEMBERS', nodes)) do
    local is_shared = tag ~= '' and redis.call('HEXISTS', base .. 'node:' .. other, 'tag') == 1
    local living = not (is_shared or dead[other]) and redis.call('GET', base .. 'lease:' .. other)
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
if tag ~= '' then
  redis.call('HSET', node, 'tag', tag, 'link', link, 'process', owner)
  redis.call('HSET', tags, tag, token)
  redis.call('SET', secret, ARGV[8], 'NX')
end
return tonumber(cursor)
