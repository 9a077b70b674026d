#!lua flags=allow-oom
-- Renews the lease of a running server, or ends it. While a lease lasts, no other server takes the sessions of its owner.
--
-- Returns 1. Or 'fenced' if another server has taken them.
--
-- KEYS[1]  node:<token>, the server
-- KEYS[2]  lease:<token>
-- ARGV[1]  milliseconds that the lease lasts from now on; 0 ends it
-- ARGV[2]  what the lease says of its owner, as JSON
local node, lease = KEYS[1], KEYS[2]
local lasts, owner = tonumber(ARGV[1]), ARGV[2]

if redis.call('EXISTS', node) == 0 then
  return 'fenced'
end
if lasts == 0 then
  redis.call('DEL', lease)
elseif redis.call('PEXPIRE', lease, lasts) == 0 then
  redis.call('SET', lease, owner, 'PX', lasts)
end
return 1
