#!lua
-- Subscribes a session to patterns: it is owed what enters the log from now on. A subscription that holds stays as it is,
-- so that a repeated call is harmless.
--
-- Returns for each pattern the id after which it holds; nothing at all if the session's end has begun; or 'fenced' if
-- another server owns the session.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     last
-- KEYS[3]     facts
-- ARGV[1]     token
-- ARGV[2]     name of the session
-- ARGV[3]     bound of the facts, entries
-- ARGV[4...]  patterns
local session, last, facts = KEYS[1], KEYS[2], KEYS[3]
local token, name, facts_max = ARGV[1], ARGV[2], ARGV[3]

local owner, ending = unpack(redis.call('HMGET', session, 'owner', 'ending'))
if owner ~= token then
  return 'fenced'
elseif ending then
  return {}
end

local newest = redis.call('GET', last) or '0'
local answer, added = {}, {}
for at = 4, #ARGV do
  local pattern = ARGV[at]
  if redis.call('HSETNX', session, 's:' .. pattern, newest) == 1 then
    added[#added + 1] = pattern
    answer[#answer + 1] = tonumber(newest)
  else
    answer[#answer + 1] = tonumber(redis.call('HGET', session, 's:' .. pattern))
  end
end

if #added > 0 then
  local fact = '{"session":%s,"patterns":%s,"from":%s}'
  fact = string.format(fact, cjson.encode(name), cjson.encode(added), newest)
  redis.call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'subscribed', 'd', fact)
end
return answer
