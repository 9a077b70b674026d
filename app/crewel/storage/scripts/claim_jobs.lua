#!lua flags=allow-oom
-- Lets a server have the running jobs of servers that are no more.
--
-- Returns the ids of all running jobs that are this server's now; or 'fenced' if it has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  jobs:open
-- ARGV[1]  what all keys begin with; job: and node: are built from it
-- ARGV[2]  token of the server
-- ARGV[3]  its name
local node, open = KEYS[1], KEYS[2]
local base, token, name = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local own = {}
for _, id in ipairs(call('SMEMBERS', open)) do
  local job = base .. 'job:' .. id
  local state, owner = unpack(call('HMGET', job, 'state', 'owner'))
  if state == 'running' then
    if owner ~= token and call('EXISTS', base .. 'node:' .. owner) == 0 then
      call('HSET', job, 'owner', token, 'node', name)
      owner = token
    end
    if owner == token then
      own[#own + 1] = id
    end
  end
end
return own
