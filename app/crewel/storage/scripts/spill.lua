#!lua flags=allow-oom
-- Copies messages that are open for a session from the log to its inbox, so that the log may lose them. A message that
-- the log has lost already stays as it is. A repeated call changes nothing and answers the same.
--
-- Returns {id, ...}: those of the messages that lie in the inbox now; or 'fenced' if another server owns the session.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     inbox:<session>
-- KEYS[3]     log
-- ARGV[1]     token
-- ARGV[2...]  log ids
local session, inbox, log = KEYS[1], KEYS[2], KEYS[3]
local token = ARGV[1]

-- include shared/packed.lua

if redis.call('HGET', session, 'owner') ~= token then
  return 'fenced'
end

local answer = {}
for at = 2, #ARGV do
  local id = ARGV[at]
  local waiting = redis.call('HGET', session, 'o:' .. id)
  local entry = waiting and redis.call('XRANGE', log, id .. '-0', id .. '-0')[1]
  if entry then
    redis.call('HSET', inbox, id, packed(entry[2]))
    redis.call('HDEL', session, 'o:' .. id)
    redis.call('HSET', session, 'i:' .. id, waiting)
  end
  if entry or redis.call('HEXISTS', session, 'i:' .. id) == 1 then
    answer[#answer + 1] = tonumber(id)
  end
end
return answer
