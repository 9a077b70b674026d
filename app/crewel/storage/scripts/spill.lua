#!lua flags=allow-oom
-- Copies messages that are open for a session from the log to its inbox, so that the log may lose them. The copies are charged
-- to the session's account: `p` of each says so. A message that the log has lost already stays as it is. A repeated call changes
-- nothing and answers the same.
--
-- Returns {id, ...}: those of the messages that lie in the inbox now; or 'fenced' if another server owns the session.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     inbox:<session>
-- KEYS[3]     log
-- ARGV[1]     token
-- ARGV[2]     the session's account; empty if it has none
-- ARGV[3...]  log ids
local session, inbox, log = KEYS[1], KEYS[2], KEYS[3]
local token, account = ARGV[1], ARGV[2]

-- include shared/packed.lua

if redis.call('HGET', session, 'owner') ~= token then
  return 'fenced'
end

-- The fields of a copy, from those of the log's entry.
local function charged(fields)
  for at = 1, #fields, 2 do
    if fields[at] == 'p' then
      fields[at + 1] = account
      return fields
    end
  end
  fields[#fields + 1], fields[#fields + 2] = 'p', account
  return fields
end

local answer = {}
for at = 3, #ARGV do
  local id = ARGV[at]
  local waiting = redis.call('HGET', session, 'o:' .. id)
  local entry = waiting and redis.call('XRANGE', log, id .. '-0', id .. '-0')[1]
  if entry then
    redis.call('HSET', inbox, id, packed(charged(entry[2])))
    redis.call('HDEL', session, 'o:' .. id)
    redis.call('HSET', session, 'i:' .. id, waiting)
  end
  if entry or redis.call('HEXISTS', session, 'i:' .. id) == 1 then
    answer[#answer + 1] = tonumber(id)
  end
end
return answer
