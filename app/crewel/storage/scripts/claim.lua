#!lua
-- Notes the name of a session that is not stored, where several nodes share the store: so no other one gives the name, and
-- addressed messages find it. A repeated call changes nothing, or whether the session takes addressed messages.
--
-- Returns 1; or 'fenced' if the node has been superseded, 'taken' if another session has the name, 'too many' if the subject
-- has its sessions already.
--
-- KEYS[1]  node:<token>, the node that has the session
-- KEYS[2]  unstored:<token>
-- KEYS[3]  subject:<subject>
-- ARGV[1]  what all keys begin with; nodes, node:, unstored: of the others, and s: are built from it
-- ARGV[2]  name of the session
-- ARGV[3]  'ptp' if it takes addressed messages, else '-'
-- ARGV[4]  sessions that the subject may have; negative: any number
local node, own, subject = KEYS[1], KEYS[2], KEYS[3]
local base, name, takes, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local call = redis.call

-- include shared/unstored.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local known = call('ZRANGEBYLEX', own, '[' .. name .. ' ', '(' .. name .. '!')
if #known == 0 then
  if call('EXISTS', base .. 's:' .. name) == 1 or is_unstored(name, own) then
    return 'taken'
  elseif most >= 0 and count_sessions(subject, string.match(name, '^.*/')) >= most then
    return 'too many'
  end
else
  call('ZREM', own, unpack(known))
end
call('ZADD', own, 0, name .. ' ' .. takes)
return 1
