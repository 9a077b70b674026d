#!lua flags=allow-oom
-- Removes what has expired from histories and shared queues. A repeated call finds less.
--
-- Returns {taken, name, removed, left, ...}: how many it has looked at, then the channels and the queues that something was
-- removed from, how many messages, and how many each has left; or 'fenced' if the server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  expiry
-- KEYS[3]  facts
-- ARGV[1]  what all keys begin with; h:, topic:, q: and qb: are built from it
-- ARGV[2]  now, milliseconds since 1970
-- ARGV[3]  messages to look at, at most
-- ARGV[4]  bound of the facts, entries
local node, expiry, facts = unpack(KEYS)
local base, now_ms, most, facts_max = unpack(ARGV)
local call = redis.call

-- include shared/queues.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local names, expired = {}, {}
local members = call('ZRANGE', expiry, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
for _, member in ipairs(members) do
  local id, name = string.match(member, '^(%d+) (.*)$')
  call('ZREM', expiry, member)
  if not expired[name] then
    names[#names + 1], expired[name] = name, {}
  end
  table.insert(expired[name], id)
end

local function from_history(channel, ids)
  local history, removed = base .. 'h:' .. channel, 0
  for _, id in ipairs(ids) do
    removed = removed + call('XDEL', history, id .. '-0')
  end
  local left = call('XLEN', history)
  if left == 0 and call('UNLINK', history) == 1 then
    call('HSET', base .. 'topic:' .. channel, 'past', 1)
  end
  return removed, left
end

local function from_queue(queue, ids)
  local places, gone = {}, {}
  for _, id in ipairs(ids) do
    local place = find_place(queue, id)
    if place then
      places[#places + 1], gone[#gone + 1] = place, id
    end
  end
  dequeue(queue, gone, places)
  if #gone > 0 then
    local fact = '{"ended":[{"session":' .. cjson.encode(queue) .. ',"reason":"expired","ids":[' .. table.concat(gone, ',')
      .. ']}]}'
    call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', fact)
  end
  return #gone, call('ZCARD', base .. 'q:' .. queue)
end

local answer = {#members}
for _, name in ipairs(names) do
  local remove = string.sub(name, 1, 1) == '/' and from_history or from_queue
  local removed, left = remove(name, expired[name])
  if removed > 0 then
    answer[#answer + 1] = name
    answer[#answer + 1] = removed
    answer[#answer + 1] = left
  end
end
return answer
