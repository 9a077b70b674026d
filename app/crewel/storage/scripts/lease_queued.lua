#!lua flags=allow-oom
-- Leases messages of a shared queue, the best first: each to the member that has the most room, has not failed it, and has not
-- got it already in another way. It moves into that session's inbox. What all members have failed is leased
-- to the first of them, whatever its room, so that it can become a dead letter; but for a subject's message, which waits for
-- another session. What has expired goes. A call looks at so many that the store is soon there for others again. A repeated
-- call answers the same again.
--
-- Returns a JSON object: `left`, how many wait in the queue now; `expired`, how many have gone; `after`, the place behind
-- which another call continues, because so many are not leased, or ''; and `leased`, objects with `receiver`, `id`, `size` in
-- bytes, `channel`, `attempts`, `priority`, `expires`, and the names in `failed`; ids and times are
-- texts. Or 'fenced' if the server has been superseded.
--
-- KEYS[1]     node:<token>, the server that asks
-- KEYS[2]     facts
-- KEYS[3]     k:<scope> of this call
-- ARGV[1]     what all keys begin with; s:, inbox:, q:, qb:, members:, subject: and ptp: are built from it
-- ARGV[2]     token
-- ARGV[3]     bound of the facts, entries
-- ARGV[4]     how long the answer is remembered, milliseconds
-- ARGV[5]     the queue
-- ARGV[6]     now, by the server's clock, microseconds since 1970: what has expired by then goes; 0: nothing
-- ARGV[7]     the place behind which to begin, '' for all
-- ARGV[8...]  for each member: name of the session; messages that it has room for. Those that another server owns, or whose
--             end has begun, are none
local node, facts, once = KEYS[1], KEYS[2], KEYS[3]
local base, token, facts_max, once_ms, queue, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local after = ARGV[7]
local portion, most_not_leased = 100, 1000
local most_leased, least_leased, most_looks = 1000, 100, 100000  -- looks: at each member for each message
local call = redis.call

-- include shared/packed.lua

-- include shared/queues.lua

-- include shared/waiting.lua

-- include shared/receivers.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local before = call('GET', once)
if before then
  return before
end

local names, spaced, room = {}, {}, {}
for at = 8, #ARGV, 2 do
  local owner, ending = unpack(call('HMGET', base .. 's:' .. ARGV[at], 'owner', 'ending'))
  if owner == token and not ending then
    names[#names + 1], spaced[#names + 1] = ARGV[at], ' ' .. ARGV[at] .. ' '
    room[ARGV[at]] = tonumber(ARGV[at + 1])
  end
end
most_leased = math.max(least_leased, math.min(most_leased, math.floor(most_looks / math.max(#names, 1))))

-- Whether a session has a message open.
local function has(name, id)
  local session = base .. 's:' .. name
  return call('HEXISTS', session, 'i:' .. id) == 1 or call('HEXISTS', session, 'o:' .. id) == 1
end

-- Whether a member at another node has not failed a message, which the sessions of a text of names have failed; there is a
-- space on both sides of each.
local function is_wanted_elsewhere(failed)
  for _, name in ipairs(takers_of(queue)) do
    local is_new = name ~= '' and not string.find(failed, ' ' .. name .. ' ', 1, true)
    if is_new and call('HGET', base .. 's:' .. name, 'owner') ~= token then
      return true
    end
  end
  return false
end

-- The member that gets a message, which the sessions of a text of names have failed: the one with the most room, or the first
-- if all have failed it. And whether any has room for whatever.
local function chosen(id, failed)
  local best, most, has_any, is_wanted, is_new = nil, 0, false, false, failed == ''
  failed = ' ' .. failed .. ' '
  for at, name in ipairs(names) do
    local free = room[name]
    has_any = has_any or free > 0
    if is_new or not string.find(failed, spaced[at], 1, true) then
      is_wanted = true
      if free > most and not has(name, id) then
        best, most = name, free
      end
    end
  end
  if not is_wanted and not is_common(queue) and not has(names[1], id) and not is_wanted_elsewhere(failed) then
    best = names[1]
  end
  return best, has_any
end

local leases, of_session, expired, ids, places = {}, {}, {}, {}, {}

local function move(name, id, place, fields, expires)
  local session, attempts = base .. 's:' .. name, fields.a or '0'
  local priority = tostring(9 - string.sub(place, 1, 1))
  local kept = {}
  for field, value in pairs(fields) do
    if field ~= 'a' then
      kept[#kept + 1] = field
      kept[#kept + 1] = value
    end
  end
  call('HSET', base .. 'inbox:' .. name, id, packed(kept))
  call('HSET', session, 'i:' .. id, waiting_text(attempts, #fields.b, fields.c, priority, expires, queue))
  if is_common(queue) then
    call('SADD', receivers_of(id, queue), name)
  end
  room[name] = room[name] - 1
  of_session[name] = of_session[name] or {}
  table.insert(of_session[name], id)
  leases[#leases + 1] = {receiver = name, id = id, size = #fields.b, channel = fields.c, attempts = tonumber(attempts),
    priority = tonumber(priority), expires = expires, failed = fields.f or ''}
end

-- Looks at the message at a place: it is leased, or goes, or is passed over. Returns false if no member has room.
local passed_over = 0
local function look_at(place)
  local id = string.sub(place, 3)
  local text = call('HGET', base .. 'qb:' .. queue, id)
  local fields = unpacked(text or '')
  -- What an operator has sent again does not expire: its `e` says that it was edited.
  local expires = not fields.r and fields.e or '0'
  if not text or (expires ~= '0' and tonumber(expires) <= now) then
    expired[#expired + 1] = id
  else
    local name, has_any = chosen(id, fields.f or '')
    if not name then
      passed_over = passed_over + 1
      return has_any
    end
    move(name, id, place, fields, expires)
  end
  ids[#ids + 1], places[#places + 1] = id, place
  return true
end

-- Looks at what waits behind a place, or at all. Returns the place of the last one if it has to stop before the end because
-- so many are not leased; else ''.
local function look_behind(place)
  while true do
    local from = place ~= '' and '(' .. place or '-'
    local found = call('ZRANGEBYLEX', base .. 'q:' .. queue, from, '+', 'LIMIT', 0, portion)
    for at = 1, #found do
      place = found[at]
      if not look_at(place) or #leases == most_leased then
        return ''
      elseif passed_over + #expired == most_not_leased then
        return place
      end
    end
    if #found < portion then
      return ''
    end
  end
end

after = #names > 0 and look_behind(after) or ''
for from = 1, #ids, 1000 do
  local to = math.min(from + 999, #ids)
  dequeue(queue, {unpack(ids, from, to)}, {unpack(places, from, to)})
end
local function append_fact(kind, fact)
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', kind, 'd', fact)
end
if #expired > 0 then
  append_fact('ended', '{"ended":[{"session":' .. cjson.encode(queue)
    .. ',"reason":"expired","ids":[' .. table.concat(expired, ',')
    .. ']}]}')
end
local left = call('ZCARD', base .. 'q:' .. queue)
local answer = '{"left":' .. left .. ',"expired":' .. #expired .. ',"after":"' .. after .. '","leased":'
if #leases == 0 then
  return answer .. '[]}'
end
local objects = {}
for name, of_it in pairs(of_session) do
  objects[#objects + 1] = '{"session":' .. cjson.encode(name) .. ',"ids":[' .. table.concat(of_it, ',') .. ']}'
end
append_fact('leased', '{"queue":' .. cjson.encode(queue) .. ',"leases":[' .. table.concat(objects, ',') .. ']}')
answer = answer .. cjson.encode(leases) .. '}'
call('SET', once, answer, 'PX', once_ms)
return answer
