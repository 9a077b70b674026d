#!lua
-- Sends a message to certain receivers past the log: into the inboxes of sessions, and into shared queues. It has one id for
-- all of them. A subject's message that several sessions get is theirs together: who still has it open is kept. What goes into
-- inboxes of sessions of other servers lies in the log as well, with `w`, what waits for whom: so these learn of it. Another
-- server may just have taken a session that this one believes to have.
--
-- Returns {prev, id, 1 if this was done before else 0, {outcome, ...}, {to, ...}}: the newest id before this call; one
-- outcome a delivery, 'ok', 'gone' if the session is not in the store or its end has begun, 'full' if the receiver has what
-- it may have waiting; and the destinations that were reached, as they are addressed. Or 'fenced' if the server has been
-- superseded.
--
-- A call that has reached any is remembered by its key. A repeat answers what the first one did: for a place that was not among
-- its deliveries the outcome is 'other'. It is remembered twice: under the key as 1.0.0 writes and reads it,
-- `prev id outcome ...` in the order of the deliveries; and, if a publisher gave the key, by place, as JSON, under a second one.
--
-- KEYS[1]      node:<token>, the server that publishes
-- KEYS[2]      last
-- KEYS[3]      facts
-- KEYS[4]      k:<scope> of the key
-- KEYS[5]      log
-- ARGV[1]      what all keys begin with; s:, inbox:, q:, qb:, ptp: and k:places <scope> are built from it
-- ARGV[2]      bound of the facts, entries
-- ARGV[3]      how long a key is remembered, milliseconds
-- ARGV[4]      channel
-- ARGV[5]      body
-- ARGV[6]      name of the sender, or empty
-- ARGV[7]      PublishQos, JSON, or empty
-- ARGV[8]      priority
-- ARGV[9]      when it goes out of the queues, microseconds since 1970; 0: never
-- ARGV[10]     the key as its publisher gave it, JSON, or empty
-- ARGV[11]     the destinations that get it past the store, as they are addressed, a JSON list; or empty
-- ARGV[12]     the account that is charged for it, or empty
-- ARGV[13...]  for each delivery: whom it is addressed to; name of the session, or empty; the shared queue, or empty; the
--              shared queue that it may go back to from the session, or empty; messages and bytes that the receiver may
--              have waiting, 0 for any number; 1 if the server does not have the session, else 0. There may be none: then
--              only an id is given
local node, last, facts, once, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local base, facts_max, once_ms, channel, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local sender, qos, priority, expires, beside = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[11]
local first = 13  -- of the deliveries
local call, format = redis.call, string.format

-- include shared/packed.lua

-- include shared/queues.lua

-- include shared/room.lua

-- include shared/waiting.lua

-- include shared/receivers.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local reached = beside ~= '' and cjson.decode(beside) or {}
local is_reached = {}

local function reach(to)
  if not is_reached[to] then
    is_reached[to] = true
    reached[#reached + 1] = to
  end
end

-- What a server of an earlier version has remembered: the outcomes in the order of its deliveries.
local function remembered_in_order(prev, id, outcomes)
  local answer, at = {}, first
  for outcome in string.gmatch(outcomes, '%a+') do
    answer[#answer + 1] = outcome
    if outcome == 'ok' and ARGV[at] then
      reach(ARGV[at])
    end
    at = at + 7
  end
  return {tonumber(prev), tonumber(id), 1, answer, reached}
end

-- What a server of this version has remembered.
local function remembered_by_place(prev, id, record)
  local known, answer = cjson.decode(record), {}
  for at = first, #ARGV, 7 do
    answer[#answer + 1] = known.places[ARGV[at + 1] ~= '' and ARGV[at + 1] or ARGV[at + 2]] or 'other'
  end
  return {tonumber(prev), tonumber(id), 1, answer, known.reached}
end

-- No scope begins like this: a subject is followed by a channel in each.
local by_place = base .. 'k:places ' .. string.sub(once, #base + #'k:' + 1)
local before = call('GET', once)
if before then
  local prev, id, in_order = string.match(before, '^(%d+) (%d+) ?(.*)$')
  local record = call('GET', by_place)
  if record then
    return remembered_by_place(prev, id, record)
  end
  return remembered_in_order(prev, id, in_order)
end

local now = call('TIME')
local prev = tonumber(call('GET', last) or 0)
local id = math.max(prev, now[1] * 1000000 + now[2] - 1) + 1
local text = format('%.0f', id)
local entry = {'c', channel, 'b', body}
for field, value in pairs({s = sender, q = qos, e = expires ~= '0' and expires or '', p = ARGV[12]}) do
  if value ~= '' then
    entry[#entry + 1] = field
    entry[#entry + 1] = value
  end
end

local elsewhere = {}
local function into_inbox(name, message, source, max_entries, max_bytes, is_elsewhere)
  local session = base .. 's:' .. name
  local owner, ending = unpack(call('HMGET', session, 'owner', 'ending'))
  if not owner or ending then
    return 'gone'
  elseif call('HEXISTS', session, 'i:' .. text) == 1 then
    return 'ok'  -- by another of its addresses
  elseif not has_room(name, session, #body, max_entries, max_bytes) then
    return 'full'
  end
  call('HSET', base .. 'inbox:' .. name, text, message)
  local waiting = waiting_text('0', #body, channel, priority, expires, source)
  call('HSET', session, 'i:' .. text, waiting)
  if is_elsewhere or base .. 'node:' .. owner ~= node then
    elsewhere[name] = waiting
  end
  if is_common(source) then
    call('SADD', receivers_of(text, source), name)
  end
  return 'ok'
end

local function into_queue(queue, message, max_entries)
  if max_entries > 0 and call('ZCARD', base .. 'q:' .. queue) >= max_entries then
    return 'full'
  end
  enqueue(queue, text, message, priority, expires)
  return 'ok'
end

local outcomes, places, sessions, queues = {}, {}, {}, {}
for at = first, #ARGV, 7 do
  local to, name, queue, source = unpack(ARGV, at, at + 3)
  local message = packed({'t', to, unpack(entry)})
  local outcome, taken, receiver
  if name ~= '' then
    local max_entries, max_bytes, is_elsewhere = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), ARGV[at + 6] == '1'
    outcome = into_inbox(name, message, source, max_entries, max_bytes, is_elsewhere)
    taken, receiver = sessions, name
  else
    outcome = into_queue(queue, message, tonumber(ARGV[at + 4]))
    taken, receiver = queues, queue
  end
  outcomes[#outcomes + 1], places[receiver] = outcome, outcome
  if outcome == 'ok' then
    taken[#taken + 1] = cjson.encode(receiver)
    reach(to)
  end
end

if next(elsewhere) then
  call('XADD', log, text .. '-0', 'w', cjson.encode(elsewhere), 't', ARGV[first], unpack(entry))
end
call('SET', last, text)
if #reached > 0 then
  local in_order = #outcomes > 0 and ' ' .. table.concat(outcomes, ' ') or ''
  call('SET', once, format('%.0f', prev) .. ' ' .. text .. in_order, 'PX', once_ms)
  if ARGV[10] ~= '' then  -- else only this very step is repeated, which has the same deliveries
    call('SET', by_place, cjson.encode({places = places, reached = reached}), 'PX', once_ms)
  end
end
if #sessions + #queues > 0 then
  local key = ARGV[10] ~= '' and ',"key":' .. ARGV[10] or ''
  local fact = '{"id":%s,"channel":"%s","sessions":[%s],"queues":[%s]%s}'
  fact = format(fact, text, channel, table.concat(sessions, ','), table.concat(queues, ','), key)
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'addressed', 'd', fact)
end
return {prev, id, 0, outcomes, reached}
