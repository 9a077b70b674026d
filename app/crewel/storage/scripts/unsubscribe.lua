#!lua flags=allow-oom
-- Ends subscriptions of a session: it is owed what has entered the log until now, and nothing beyond. The interval is kept
-- until a commit has passed it, unless it is empty: then a later interval of the pattern may begin at the same place.
-- A repeated call answers the same, from the intervals that are kept. A membership of a group ends as well; with the last one
-- goes what waits for the group.
--
-- Returns {from, until, ...} for each pattern: the ids after which and up to which it held, or twice -1 if nothing is
-- known of a subscription; or 'fenced' if another server owns the session.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     last
-- KEYS[3]     facts
-- ARGV[1]     what all keys begin with; members:, q: and qb: are built from it
-- ARGV[2]     token
-- ARGV[3]     name of the session
-- ARGV[4]     bound of the facts, entries
-- ARGV[5...]  patterns
local session, last, facts = KEYS[1], KEYS[2], KEYS[3]
local base, token, name, facts_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call

-- include shared/queues.lua

-- include shared/groups.lua

if call('HGET', session, 'owner') ~= token then
  return 'fenced'
end

-- The newest interval of a pattern that has ended and is kept.
local record
local function kept(pattern)
  record = record or call('HGETALL', session)
  local prefix = 'c:' .. pattern .. ' '
  local from, till = -1, -1
  for at = 1, #record, 2 do
    if string.sub(record[at], 1, #prefix) == prefix then
      local since = string.match(record[at], '^%d+$', #prefix + 1)
      if since and tonumber(since) > from then
        from, till = tonumber(since), tonumber(record[at + 1])
      end
    end
  end
  return from, till
end

local newest = call('GET', last) or '0'
local answer, ended, starts, groups, lapsed = {}, {}, {}, {}, {}
for at = 5, #ARGV do
  local pattern = ARGV[at]
  local since, options = unpack(call('HMGET', session, 's:' .. pattern, 'p:' .. pattern))
  if options then
    call('HDEL', session, 'p:' .. pattern)
    for group in pairs(groups_of(pattern, options)) do
      leave(group, lapsed)
      groups[#groups + 1] = group
    end
  end
  local from, till
  if since then
    call('HDEL', session, 's:' .. pattern)
    if since ~= newest then
      call('HSET', session, 'c:' .. pattern .. ' ' .. since, newest)
    end
    ended[#ended + 1] = pattern
    starts[#starts + 1] = since
    from, till = tonumber(since), tonumber(newest)
  else
    from, till = kept(pattern)
  end
  answer[#answer + 1] = from
  answer[#answer + 1] = till
end

if #ended + #groups > 0 then
  local fact = '{"session":%s,"patterns":%s,"from":[%s],"until":%s%s}'
  local left = #groups > 0 and ',"groups":' .. list_of(groups) or ''
  fact = string.format(fact, cjson.encode(name), list_of(ended), table.concat(starts, ','), newest, left)
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'unsubscribed', 'd', fact)
end
if #lapsed > 0 then
  local fact = '{"ended":[' .. table.concat(lapsed, ',') .. ']}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', fact)
end
return answer
