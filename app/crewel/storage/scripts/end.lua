#!lua flags=allow-oom
-- Ends a session, whose end was begun by close.lua and is passed by its owner's cursor: everything of it leaves the store,
-- and in the same step come the letters and facts that tell what became of its messages. A repeated call finds nothing
-- and changes nothing.
--
-- A letter takes its message from the inbox or the log; if it has gone from there, the letter says so by being empty.
--
-- Returns 'ended'; or 'fenced' if another server owns the session.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     inbox:<session>
-- KEYS[3]     own:<token>
-- KEYS[4]     subject:<subject>
-- KEYS[5]     log
-- KEYS[6]     dead
-- KEYS[7]     facts
-- ARGV[1]     token
-- ARGV[2]     name of the session
-- ARGV[3]     bound of the facts, entries
-- ARGV[4]     bound of the letters, entries
-- ARGV[5]     number of the facts about ends
-- ARGV[6...]  these facts, JSON objects; then letters, seven arguments each: id, code, reason, attempts, and of a message
--             that was never stored the channel, body and sender, which are empty otherwise
local session, inbox, own, subject, log, dead, facts = unpack(KEYS)
local token, name, facts_max, letters_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local letters_at = 6 + ARGV[5]
local call = redis.call

-- include shared/letters.lua

local owner = call('HGET', session, 'owner')
if not owner then
  return 'ended'
elseif owner ~= token then
  return 'fenced'
end

for at = letters_at, #ARGV, 7 do
  bury(name, inbox, at)
end
call('UNLINK', session, inbox)
call('SREM', own, name)
call('SREM', subject, name)

if letters_at > 6 then
  local fact = '{"ended":[' .. table.concat(ARGV, ',', 6, letters_at - 1) .. ']}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', fact)
end
local fact = '{"session":' .. cjson.encode(name) .. '}'
call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'closed-session', 'd', fact)
return 'ended'
