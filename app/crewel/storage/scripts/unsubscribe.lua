#!lua flags=allow-oom
-- Ends subscriptions of a session: what has entered the log until now is still delivered, and nothing beyond. The interval is
-- kept until a commit has passed it, unless it is empty: then a later interval of the pattern may begin at the same place. A
-- repeated call answers the same, from the intervals that are kept. A membership of a group ends as well; with the last one
-- goes what waits for the group.
--
-- If it is because a topic was erased, or the server ends the subscription itself, the session gets the notice of that behind
-- all that came before, instead of one that waits; and it stays a member of groups for which something waits.
--
-- Returns {from, until, ...} for each pattern: the ids after which and up to which it held, twice -1 if nothing is known of a
-- subscription, or twice -2 if it stays because something waits for its group; then, if there is a notice, the newest id
-- before this call and the id of the notice; or 'fenced' if another server owns the session.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     last
-- KEYS[3]     facts
-- ARGV[1]     what all keys begin with; members:, q: and qb: are built from it
-- ARGV[2]     token
-- ARGV[3]     name of the session
-- ARGV[4]     bound of the facts, entries
-- ARGV[5]     the channel of the topic that was erased, or the pattern of which the notice tells; or empty
-- ARGV[6]     '1' if the session gets the notice, else '0'
-- ARGV[7]     why the server ends the subscription, JSON; empty if the topic was erased
-- ARGV[8...]  patterns
local session, last, facts = KEYS[1], KEYS[2], KEYS[3]
local base, token, name, facts_max, erased, has_notice, why = unpack(ARGV, 1, 7)
local call = redis.call

-- include shared/queues.lua

-- include shared/groups.lua

if call('HGET', session, 'owner') ~= token then
  return 'fenced'
end

-- The newest interval of a pattern that has ended and is kept. All are read once: a call may be about very many patterns.
local newest_kept
local function kept(pattern)
  if not newest_kept then
    newest_kept = {}
    local record = call('HGETALL', session)
    for at = 1, #record, 2 do
      local ended_pattern, from = string.match(record[at], '^c:(.*) (%d+)$')
      if from and tonumber(from) > (newest_kept[ended_pattern] or {-1})[1] then
        newest_kept[ended_pattern] = {tonumber(from), tonumber(record[at + 1])}
      end
    end
  end
  return unpack(newest_kept[pattern] or {-1, -1})
end

-- Whether something waits for a group that these options ask for.
local function has_waiting(pattern, options)
  for group in pairs(groups_of(pattern, options)) do
    if call('EXISTS', base .. 'q:' .. group) == 1 then
      return true
    end
  end
  return false
end

local newest = call('GET', last) or '0'
local answer, ended, starts, groups, lapsed = {}, {}, {}, {}, {}
for at = 8, #ARGV do
  local pattern = ARGV[at]
  local since, options = unpack(call('HMGET', session, 's:' .. pattern, 'p:' .. pattern))
  local stays = erased ~= '' and options and has_waiting(pattern, options)
  if options and not stays then
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
  elseif stays then
    from, till = -2, -2
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
tell_ended(lapsed)
if has_notice == '1' then
  local now = call('TIME')
  local id = math.max(tonumber(newest), now[1] * 1000000 + now[2] - 1) + 1
  local text = string.format('%.0f', id)
  call('SET', last, text)
  call('HSET', session, 'n:' .. erased, why == '' and text or text .. ' ' .. why)
  answer[#answer + 1] = tonumber(newest)
  answer[#answer + 1] = id
end
return answer
