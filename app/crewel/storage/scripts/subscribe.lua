#!lua
-- Subscribes a session to patterns: it is delivered what enters the log from now on. A subscription that holds stays as it is,
-- so that a repeated call is harmless. Options replace those that there were; if they ask for groups, the session is a member
-- of these from now on, and of no others by this pattern.
--
-- Returns for each pattern the id after which it holds, -1 if it is to have options only; nothing at all if the session's end
-- has begun; or 'fenced' if another server owns the session.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     last
-- KEYS[3]     facts
-- ARGV[1]     what all keys begin with; members:, q: and qb: are built from it
-- ARGV[2]     token
-- ARGV[3]     name of the session
-- ARGV[4]     bound of the facts, entries
-- ARGV[5...]  for each pattern: '1' to subscribe to it, '0' if the log owes nothing for it; the pattern; its options, JSON, or
--             empty
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

-- Replaces the options of a pattern, and so perhaps the groups.
local function choose(pattern, options)
  local before = call('HGET', session, 'p:' .. pattern) or ''
  if options == before then
    return
  elseif options ~= '' then
    call('HSET', session, 'p:' .. pattern, options)
  else
    call('HDEL', session, 'p:' .. pattern)
  end
  asked[#asked + 1] = cjson.encode(pattern) .. ':' .. (options ~= '' and options or '{}')
  local wanted = groups_of(pattern, options)
  for group in pairs(groups_of(pattern, before)) do
    if not wanted[group] then
      leave(group, ended)
    end
  end
  for group in pairs(wanted) do
    if call('SADD', base .. 'members:' .. group, name) == 1 then
      groups[#groups + 1] = group
    end
  end
end

for at = 5, #ARGV, 3 do
  local pattern = ARGV[at + 1]
  choose(pattern, ARGV[at + 2])
  if ARGV[at] == '0' then
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
tell_ended(ended)
return answer
