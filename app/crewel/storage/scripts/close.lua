#!lua flags=allow-oom
-- Begins the end of a session: what has entered the log until now is still delivered, and nothing beyond. All its subscriptions
-- end here. The end has a cause if the session's receiver has failed for good. A repeated call changes nothing.
--
-- Returns the last id that is delivered to the session; or 'fenced' if another server owns the session, or none has it.
--
-- KEYS[1]  s:<session>
-- KEYS[2]  last
-- KEYS[3]  facts
-- ARGV[1]  token
-- ARGV[2]  name of the session
-- ARGV[3]  bound of the facts, entries
-- ARGV[4]  the cause, a JSON list of error code and reason; empty if there is none
local session, last, facts = KEYS[1], KEYS[2], KEYS[3]
local token, name, facts_max, death = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local owner, ending = unpack(redis.call('HMGET', session, 'owner', 'ending'))
if owner ~= token then
  return 'fenced'
elseif ending then
  return tonumber(ending)
end

local newest = redis.call('GET', last) or '0'
local record = redis.call('HGETALL', session)
local ended, from = {}, {}
for at = 1, #record, 2 do
  local pattern = string.match(record[at], '^s:(.*)$')
  if pattern then
    local since = record[at + 1]
    redis.call('HDEL', session, record[at])
    if since ~= newest then
      redis.call('HSET', session, 'c:' .. pattern .. ' ' .. since, newest)
    end
    ended[#ended + 1] = pattern
    from[#from + 1] = since
  end
end
redis.call('HSET', session, 'ending', newest)
if death ~= '' then
  redis.call('HSET', session, 'death', death)
end

if #ended > 0 then
  local fact = '{"session":%s,"patterns":%s,"from":[%s],"until":%s}'
  fact = string.format(fact, cjson.encode(name), cjson.encode(ended), table.concat(from, ','), newest)
  redis.call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'unsubscribed', 'd', fact)
end
return tonumber(newest)
