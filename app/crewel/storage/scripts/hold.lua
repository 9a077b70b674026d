#!lua flags=allow-oom
-- Notes that a session's receiver gets nothing for the time being, and why, or that it gets everything again. A repeated
-- call changes nothing.
--
-- Returns 'held' or 'released'; or 'fenced' if another server owns the session, or none has it.
--
-- KEYS[1]  s:<session>
-- KEYS[2]  facts
-- ARGV[1]  token
-- ARGV[2]  bound of the facts, entries
-- ARGV[3]  who, when and why, a JSON object; empty to release
-- ARGV[4]  the fact, a JSON object
local session, facts = KEYS[1], KEYS[2]
local token, facts_max, dispatch, fact = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local owner, before = unpack(redis.call('HMGET', session, 'owner', 'd'))
if owner ~= token then
  return 'fenced'
end

local outcome
if dispatch ~= '' then
  outcome = 'held'
  redis.call('HSET', session, 'd', dispatch)
else
  outcome = 'released'
  redis.call('HDEL', session, 'd')
end
if dispatch ~= (before or '') then
  redis.call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', outcome, 'd', fact)
end
return outcome
