#!lua flags=allow-oom
-- Registers a starting server: it has taken the log up to `last`, and nothing before is needed by it. A repeated call
-- changes nothing.
--
-- Returns the id up to which the server has taken the log: `last` as it was at the first call.
--
-- KEYS[1]  last
-- KEYS[2]  nodes
-- KEYS[3]  node:<token>, the server that starts
-- KEYS[4]  epoch
-- ARGV[1]  token
-- ARGV[2]  name of the node
local last, nodes, node, epoch = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, name = ARGV[1], ARGV[2]

local known = redis.call('HGET', node, 'cursor')
if known then
  return tonumber(known)
end

local cursor = redis.call('GET', last) or '0'
local now = redis.call('TIME')
local since = string.format('%.0f', now[1] * 1000000 + now[2])
local number = string.format('%.0f', redis.call('INCR', epoch))
redis.call('HSET', node, 'name', name, 'cursor', cursor, 'low', cursor, 'seq', '0', 'since', since, 'epoch', number)
redis.call('SADD', nodes, token)
return tonumber(cursor)
