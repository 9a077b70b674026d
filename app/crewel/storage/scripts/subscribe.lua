#!lua
-- Subscribes a session to patterns: it is owed what enters the log from now on. A subscription that holds stays as it is,
-- so that a repeated call is harmless. Options replace those that there were. If they ask for a group, the session is a member
-- of that from now on, and owed nothing by the log.
--
-- Returns for each pattern the id after which it holds, -1 for a group; nothing at all if the session's end has begun; or
-- 'fenced' if another server owns the session.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     last
-- KEYS[3]     facts
-- ARGV[1]     what all keys begin with; members:, q: and qb: are built from it
-- ARGV[2]     token
-- ARGV[3]     name of the session
-- ARGV[4]     bound of the facts, entries
-- ARGV[5...]  for each pattern: it; its options, a JSON object, or empty
local session, last, facts = KEYS[1], KEYS[2], KEYS[3]
local base, token, name, facts_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call

-- include shared/queues.lua

-- include shared/groups.lua

local owner, ending = unpack(call('HMGET', session, 'owner', 'ending'))
if owner ~= token then
  return 'fenced'
elseif ending then
  return {}
end

local newest = call('GET', last) or '0'
local answer, added, groups, asked, ended = {}, {}, {}, {}, {}

-- Replaces the options of a pattern, and so perhaps the group. Returns whether there is one now.
local function choose(pattern, options)
  local before = call('HGET', session, 'p:' .. pattern) or ''
  local former = before ~= '' and group_of(pattern, before)
  local group = options ~= '' and group_of(pattern, options)
  if options ~= before then
    if options ~= '' then
      call('HSET', session, 'p:' .. pattern, options)
    else
      call('HDEL', session, 'p:' .. pattern)
      options = '{}'
    end
    asked[#asked + 1] = cjson.encode(pattern) .. ':' .. options
  end
  if former and former ~= group then
    leave(former, ended)
  end
  if group and call('SADD', base .. 'members:' .. group, name) == 1 then
    groups[#groups + 1] = group
  end
  return group
end

for at = 5, #ARGV, 2 do
  local pattern = ARGV[at]
  if choose(pattern, ARGV[at + 1]) then
    answer[#answer + 1] = -1
  elseif call('HSETNX', session, 's:' .. pattern, newest) == 1 then
    added[#added + 1] = pattern
    answer[#answer + 1] = tonumber(newest)
  else
    answer[#answer + 1] = tonumber(call('HGET', session, 's:' .. pattern))
  end
end

if #added + #groups + #asked > 0 then
  local fact = '{"session":' .. cjson.encode(name) .. ',"patterns":' .. list_of(added) .. ',"from":' .. newest
  if #groups > 0 then
    fact = fact .. ',"groups":' .. list_of(groups)
  end
  if #asked > 0 then
    fact = fact .. ',"options":{' .. table.concat(asked, ',') .. '}'
  end
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'subscribed', 'd', fact .. '}')
end
if #ended > 0 then
  local fact = '{"ended":[' .. table.concat(ended, ',') .. ']}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', fact)
end
return answer
