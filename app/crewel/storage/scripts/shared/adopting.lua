-- What adopt.lua and inherit.lua share: how sessions come to this server. Needs `call`, `base`, `token`, `own`, `block` and
-- `most`; and `step`: a session that has accounted for the log up to there is in step with this server (nil: none is). Fills
-- `answer`.

local moved, fields, portion, most_fields = 0, 0, 50, 100000

local clock = call('TIME')
local now_ms = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))

-- The record less what lies beyond the session's cursor, which is deleted.
local function retracted(key, record, at)
  local left = {}
  for place = 1, #record, 2 do
    local id = string.match(record[place], '^o:(%d+)$')
    if id and tonumber(id) > tonumber(at) then
      call('HDEL', key, record[place])
    else
      left[#left + 1] = record[place]
      left[#left + 1] = record[place + 1]
    end
  end
  return left
end

-- Makes this server the owner of a session of the other one.
local function adopt(name, other, cursor, is_half_written)
  local key = base .. 's:' .. name
  local record = call('HGETALL', key)
  local owner, own_cursor, batch, away = nil, nil, 0, ''
  for place = 1, #record, 2 do
    local field = record[place]
    if field == 'owner' then
      owner = record[place + 1]
    elseif field == 'at' then
      own_cursor = record[place + 1]
    elseif field == 'batch' then
      batch = record[place + 1]
    elseif field == 'away' then
      away = record[place + 1]
    end
  end
  if owner ~= other then
    call('SREM', own, name)
    return
  end
  local at = own_cursor or cursor
  if is_half_written then
    record = retracted(key, record, at)
  end
  batch = string.format('%.0f', batch + block)
  -- Since when its client could have come again. What a server before the former owner wrote does not count: an earlier version
  -- of the server does not write that the client has come.
  local since, ends = string.match(away, '^' .. other .. ' (%d+) (%d+)$')
  if not since or since == '0' then
    since = now_ms
  end
  local awaited = token .. ' ' .. since .. ' ' .. (ends or '0')
  if at ~= step then
    call('HSET', key, 'owner', token, 'batch', batch, 'away', awaited, 'at', at)
  else
    call('HSET', key, 'owner', token, 'batch', batch, 'away', awaited)
    if own_cursor then
      call('HDEL', key, 'at')
    end
  end
  local next = #answer + 1
  answer[next], answer[next + 1], answer[next + 2], answer[next + 3] = name, at, batch, record
  moved = moved + 1
  fields = fields + #record
end

-- Moves sessions of the other server, with this record and set, as long as there is room for them in the answer.
local function adopt_some(other, record, theirs)
  local cursor, seq, opening, place = unpack(call('HMGET', record, 'cursor', 'seq', 'opening', 'scan'))
  local is_half_written = opening and tonumber(opening) > tonumber(seq)
  -- Read on where the slice before ended: to pop them at random takes ten times as long in a large set. A large set gives some
  -- more than asked for, and a small one gives all: what is beyond a portion comes in the next round.
  place = place or '0'
  while moved < most and fields < most_fields and call('EXISTS', theirs) == 1 do
    local names
    place, names = unpack(call('SSCAN', theirs, place, 'COUNT', portion - 10))
    for first = math.min(portion, most - moved) + 1, #names do
      names[first] = nil
    end
    if #names > 0 then
      call('SREM', theirs, unpack(names))
      call('SADD', own, unpack(names))
    end
    for _, name in ipairs(names) do
      adopt(name, other, cursor or '0', is_half_written)
    end
  end
  if place ~= '0' then
    call('HSET', record, 'scan', place)
  end
end
