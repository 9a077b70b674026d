#!lua
-- Sends a dead letter again, with a new log id: to its receiver, or like a message that was just published. It leaves the dead
-- letters, and waits in the inbox of a session, in the queue of a subject or group, or in the log and in the queues of the
-- groups on its channel. One that is addressed to a receiver can wait for its destination instead, and is never
-- published. Whatever server owns the receiver: the log tells that of a session's message if another one has the session, or if
-- the server that asks does not know it, with `w`, as send.lua does.
--
-- Returns {'moved', id, bytes}; {'gone'}: another operator was quicker; {'no receiver'}: the session is not in the store, its
-- end has begun, or the group has no members; {'full'}: it has what it may have waiting; {'empty'}: nothing is left of the
-- message. Or 'fenced' if the server has been superseded. A repeated call that had moved the dead letter answers the same
-- again.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  last
-- KEYS[3]  log
-- KEYS[4]  dead
-- KEYS[5]  facts
-- KEYS[6]  k:<scope> of this call
-- KEYS[7]  job:<id> that this is part of, which counts it; may be missing
-- ARGV[1]  what all keys begin with; s:, inbox:, members:, q:, qb: and dead: are built from it
-- ARGV[2]  id in `dead`
-- ARGV[3]  bound of the facts, entries
-- ARGV[4]  how long the answer is remembered, milliseconds
-- ARGV[5]  '0' for the receiver, '1' for the channel, '2' for the destination
-- ARGV[6]  messages that may wait for the receiver; 0: any number
-- ARGV[7]  bytes that may wait for it; 0: any number
-- ARGV[8]  the destination: whom the message is addressed to (client/joe, client/joe/1); empty if it has none
-- ARGV[9]  the body that is sent in place of the dead letter's, which the bin keeps; empty: none, and the dead letter ends
-- ARGV[10] who wants it, or empty
-- ARGV[11] '1' if the server that asks does not know the receiver, which may be coming to it from another one
-- ARGV[12...] for the channel: the queues of the groups that get it too
local node, last, log, dead, facts, once = unpack(KEYS)
local base, place, facts_max, once_ms, to_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local max_entries, max_bytes, destination = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local edited, who, is_elsewhere = ARGV[9], ARGV[10], ARGV[11] == '1'
local longest_history = 8000  -- bytes; of a longer one the older attempts are left out
local call, format = redis.call, string.format

-- include shared/shares.lua

-- include shared/indexes.lua

-- include shared/bin.lua

-- include shared/packed.lua

-- include shared/queues.lua

-- include shared/room.lua

-- include shared/waiting.lua

-- The attempts so far as a JSON list: those before the dead letter, the one that made it, and this redrive.
local function attempts_of(letter, now_ms, id)
  local earlier = letter.h and #letter.h < longest_history and cjson.decode(letter.h) or {}
  local known = 0  -- since the last redrive
  for _, each in ipairs(earlier) do
    known = each.redrivenAs and 0 or known + 1
  end
  if tonumber(letter.attempts) > known then
    earlier[#earlier + 1] =
      {at = tonumber(string.match(place, '^%d+')), code = letter.code, reason = letter.reason}
  end
  earlier[#earlier + 1] = {at = now_ms, redrivenAs = id}
  return cjson.encode(earlier)
end

-- The fields of the log's entry.
local function entry_of(letter, returns, attempts)
  local entry = {'c', letter.channel, 'b', letter.body}
  local further = {s = letter.sender, x = letter.x or '', q = letter.qos, r = place, n = returns, t = destination, h = attempts,
    e = (edited ~= '' or letter.e == '1') and '1' or ''}
  for field, value in pairs(further) do
    if value ~= '' then
      entry[#entry + 1] = field
      entry[#entry + 1] = value
    end
  end
  return entry
end

-- Its priority, a text.
local function priority_of(letter)
  local qos = letter.qos ~= '' and cjson.decode(letter.qos) or {}
  return string.format('%.0f', qos.priority or usual_priority)
end

local function append_fact(kind, fact)
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', kind, 'd', fact)
end

-- Puts it into the queues of groups, and notes the fact.
local function share_with_groups(text, entry, letter)
  local queues, message = {}, packed(entry)
  for at = 12, #ARGV do
    enqueue(ARGV[at], text, message, priority_of(letter), '0')
    queues[#queues + 1] = cjson.encode(ARGV[at])
  end
  append_fact('addressed', format('{"id":%s,"channel":"%s","sessions":[],"queues":[%s]}', text, letter.channel,
    table.concat(queues, ',')))
end

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local original = call('XRANGE', dead, place, place)[1]
local letter = fields_of(original)
if not letter then
  local id, bytes = string.match(call('GET', once) or '', '^(%d+) (%d+)$')
  return id and {'moved', tonumber(id), tonumber(bytes)} or {'gone'}
elseif letter.channel == '' then
  return {'empty'}
end
complete(letter)
letter.body = edited ~= '' and edited or letter.body

local size = #letter.body
local receiver = ARGV[5] == '2' and destination or letter.receiver
local session, inbox = base .. 's:' .. receiver, base .. 'inbox:' .. receiver
local is_group = string.match(receiver, '^group:')
local is_queue = is_group or string.match(receiver, '^client/[^/]+$')
local owner
if is_queue and not to_channel then
  if is_group and call('EXISTS', base .. 'members:' .. receiver) == 0 then
    return {'no receiver'}
  elseif max_entries > 0 and call('ZCARD', base .. 'q:' .. receiver) >= max_entries then
    return {'full'}
  end
elseif not to_channel then
  local ending
  owner, ending = unpack(call('HMGET', session, 'owner', 'ending'))
  if not owner or ending then
    return {'no receiver'}
  elseif not has_room(receiver, session, size, max_entries, max_bytes) then
    return {'full'}
  end
end

local now = call('TIME')
local id = math.max(tonumber(call('GET', last) or 0), now[1] * 1000000 + now[2] - 1) + 1
local text = format('%.0f', id)
local returns = format('%.0f', (letter.n or 0) + 1)
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local entry = entry_of(letter, returns, attempts_of(letter, now_ms, text))
if edited ~= '' then
  put_into_bin(original, letter, next_binned_at(), {who = who, as = text})
else
  take_out(place, letter)
end
call('SET', last, text)
call('SET', once, text .. ' ' .. size, 'PX', once_ms)
if KEYS[7] then
  call('HINCRBY', KEYS[7], 'done', 1)
end

local where
if to_channel then
  call('XADD', log, text .. '-0', unpack(entry))
  append_fact('published', '{"first":' .. text .. ',"channels":["' .. letter.channel .. '"]}')
  if #ARGV >= 12 then
    share_with_groups(text, entry, letter)
  end
  where = '"channel":' .. cjson.encode(letter.channel)
elseif is_queue then
  enqueue(receiver, text, packed(entry), priority_of(letter), '0')
  where = '"session":' .. cjson.encode(receiver)
else
  call('HSET', inbox, text, packed(entry))
  local waiting = waiting_text('0', size, letter.channel, priority_of(letter), '0', '')
  call('HSET', session, 'i:' .. text, waiting)
  if is_elsewhere or base .. 'node:' .. owner ~= node then
    call('XADD', log, text .. '-0', 'w', cjson.encode({[receiver] = waiting}), unpack(entry))
  end
  where = '"session":' .. cjson.encode(receiver)
end
local first = letter.u and ',"first":' .. cjson.encode(letter.u) or ''
local job = KEYS[7] and ',"job":' .. cjson.encode(string.sub(KEYS[7], #base + #'job:' + 1)) or ''
append_fact('redriven', '{"letter":"' .. place .. '","message":' .. cjson.encode(letter.id) .. ',"id":' .. text .. ',' .. where
  .. ',"code":' .. cjson.encode(letter.code) .. ',"returns":' .. returns .. first .. (edited ~= '' and ',"edited":true' or '') .. job .. '}')
return {'moved', id, size}
