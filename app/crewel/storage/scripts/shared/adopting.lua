-- What adopt.lua and inherit.lua share: how one session comes to this server. Needs `call`, `base`, `token`, `own` and `block`;
-- fills `answer`, and counts in `moved` and `fields`.

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
  local owner, at, batch, away = nil, cursor, 0, ''
  for place = 1, #record, 2 do
    local field = record[place]
    if field == 'owner' then
      owner = record[place + 1]
    elseif field == 'at' then
      at = record[place + 1]
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
  call('HSET', key, 'owner', token, 'at', at, 'batch', batch, 'away', token .. ' ' .. since .. ' ' .. (ends or '0'))
  local next = #answer + 1
  answer[next], answer[next + 1], answer[next + 2], answer[next + 3] = name, at, batch, record
  moved = moved + 1
  fields = fields + #record
end
