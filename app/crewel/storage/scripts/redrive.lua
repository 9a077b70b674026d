#!lua
-- Sends a dead letter again: taken out of the dead letters it gets a new log id, and waits in the inbox of its receiver, or
-- lies in the log like something just published. Whatever server owns the receiver; one that does not know yet sees that
-- ids were given that it has not taken.
--
-- Returns {'moved', id, bytes}; {'gone'}: somebody was quicker; {'no receiver'}: the session is not in the store, or its
-- end has begun; {'full'}: it has what it may have waiting; {'empty'}: nothing is left of the message. Or 'fenced' if the
-- server has been superseded. A repeated call that had moved the letter answers the same again.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  last
-- KEYS[3]  log
-- KEYS[4]  dead
-- KEYS[5]  facts
-- KEYS[6]  k:<scope> of this call
-- ARGV[1]  what all keys begin with; s:, inbox: and dead: are built from it
-- ARGV[2]  id in `dead`
-- ARGV[3]  bound of the facts, entries
-- ARGV[4]  how long the answer is remembered, milliseconds
-- ARGV[5]  '1' for the channel, '0' for the receiver
-- ARGV[6]  messages that may wait for the receiver; 0: any number
-- ARGV[7]  bytes that may wait for it; 0: any number
local node, last, log, dead, facts, once = unpack(KEYS)
local base, place, facts_max, once_ms, to_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local max_entries, max_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
local call, format = redis.call, string.format

-- include shared/indexes.lua

-- include shared/packed.lua

-- Whether one more message of so many bytes is within the bounds. To count is long work for a session that has thousands
-- waiting: what was counted is remembered for a second, and counts until then if there was room.
local function has_room(name, session, size)
  if max_bytes == 0 and (max_entries == 0 or call('HLEN', session) < max_entries) then
    return true
  end
  local memo = base .. 'k:waiting ' .. name
  local entries, bytes = string.match(call('GET', memo) or '', '^(%d+) (%d+)$')
  local function is_within()
    return (max_entries == 0 or entries + 1 <= max_entries) and (max_bytes == 0 or bytes + size <= max_bytes)
  end
  if not entries or not is_within() then
    entries, bytes = 0, 0
    local record = call('HGETALL', session)
    for at = 1, #record, 2 do
      if string.match(record[at], '^[oi]:') then
        entries = entries + 1
        bytes = bytes + string.match(record[at + 1], '^%d+:(%d+)')
      end
    end
    if not is_within() then
      return false
    end
    call('SET', memo, '', 'PX', 1000)
  end
  call('SET', memo, format('%.0f %.0f', entries + 1, bytes + size), 'KEEPTTL')
  return true
end

-- The fields of the log's entry.
local function entry_of(letter, returns)
  local entry = {'c', letter.channel, 'b', letter.body}
  for field, value in pairs({s = letter.sender, x = letter.x or '', q = letter.qos, r = place, n = returns}) do
    if value ~= '' then
      entry[#entry + 1] = field
      entry[#entry + 1] = value
    end
  end
  return entry
end

local function told(kind, fact)
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', kind, 'd', fact)
end

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local letter = fields_of(call('XRANGE', dead, place, place)[1])
if not letter then
  local id, bytes = string.match(call('GET', once) or '', '^(%d+) (%d+)$')
  return id and {'moved', tonumber(id), tonumber(bytes)} or {'gone'}
elseif letter.channel == '' then
  return {'empty'}
end

local size = #letter.body
local session, inbox = base .. 's:' .. letter.receiver, base .. 'inbox:' .. letter.receiver
if not to_channel then
  local owner, ending = unpack(call('HMGET', session, 'owner', 'ending'))
  if not owner or ending then
    return {'no receiver'}
  elseif not has_room(letter.receiver, session, size) then
    return {'full'}
  end
end

local now = call('TIME')
local id = math.max(tonumber(call('GET', last) or 0), now[1] * 1000000 + now[2] - 1) + 1
local text = format('%.0f', id)
local returns = format('%.0f', (letter.n or 0) + 1)
local entry = entry_of(letter, returns)
take_out(place, letter)
call('SET', last, text)
call('SET', once, text .. ' ' .. size, 'PX', once_ms)

local where
if to_channel then
  call('XADD', log, text .. '-0', unpack(entry))
  told('published', '{"first":' .. text .. ',"channels":["' .. letter.channel .. '"]}')
  where = '"channel":' .. cjson.encode(letter.channel)
else
  call('HSET', inbox, text, packed(entry))
  call('HSET', session, 'i:' .. text, '0:' .. size)
  where = '"session":' .. cjson.encode(letter.receiver)
end
told('redriven', '{"letter":"' .. place .. '","message":' .. cjson.encode(letter.id) .. ',"id":' .. text .. ',' .. where
  .. ',"code":' .. cjson.encode(letter.code) .. ',"returns":' .. returns .. '}')
return {'moved', id, size}
