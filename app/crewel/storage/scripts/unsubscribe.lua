#!lua flags=allow-oom
-- Ends subscriptions of a session: it is owed what has entered the log until now, and nothing beyond. The interval is kept
-- until a commit has passed it, unless it is empty: then a later interval of the pattern may begin at the same place.
--
-- Returns {last, from, ...}: where they end, and for each pattern the id after which it held, or -1 if there was no
-- subscription; or 'fenced' if another server owns the session.
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

if redis.call('HGET', session, 'owner') ~= token then
  return 'fenced'
end

local newest = redis.call('GET', last) or '0'
local answer, ended, from = {tonumber(newest)}, {}, {}
for at = 4, #ARGV do
  local pattern = ARGV[at]
  local since = redis.call('HGET', session, 's:' .. pattern)
  if since then
    redis.call('HDEL', session, 's:' .. pattern)
    if since ~= newest then
      redis.call('HSET', session, 'c:' .. pattern .. ' ' .. since, newest)
    end
    ended[#ended + 1] = pattern
    from[#from + 1] = since
  end
  answer[#answer + 1] = tonumber(since or -1)
end

if #ended > 0 then
  local fact = '{"session":%s,"patterns":%s,"from":[%s],"until":%s}'
  fact = string.format(fact, cjson.encode(name), cjson.encode(ended), table.concat(from, ','), newest)
  redis.call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'unsubscribed', 'd', fact)
end
return answer
