-- For the scripts that move dead letters into the bin or take them out of it, after shared/indexes.lua.
--
-- The bin keeps what was discarded for a while. `dead:bin` has, by dead id, the fields of the entry of `dead`, name and value in
-- turn, each as `<length>:<text>`; further ones begin with `b:`. `dead:bin:at` has when it was discarded, in microseconds; no two
-- are the same. What is there has its part of `dead:bytes` and of `dead:uses` as before, and stands in no index.
local bin, binned_at = base .. 'dead:bin', base .. 'dead:bin:at'

local function strung(fields)
  local parts = {}
  for at, text in ipairs(fields) do
    parts[at] = #text .. ':' .. text
  end
  return table.concat(parts)
end

local function unstrung(text)
  local fields, at = {}, 1
  while at <= #text do
    local size, start = string.match(text, '^(%d+):()', at)
    at = start + size
    fields[#fields + 1] = string.sub(text, start, at - 1)
  end
  return fields
end

-- When the next dead letter comes into the bin: now, and later than all that are there.
local function next_binned_at()
  local now = call('TIME')
  local newest = call('ZREVRANGE', binned_at, 0, 0, 'WITHSCORES')
  return math.max(now[1] * 1000000 + now[2], (newest[2] or 0) + 1)
end

-- Moves a dead letter into the bin: `entry` of `dead`, and `letter`, its fields as a table. `more` are further fields.
local function put_into_bin(entry, letter, at, more)
  local fields = entry[2]
  for name, value in pairs(more) do
    if value ~= '' then
      fields[#fields + 1] = 'b:' .. name
      fields[#fields + 1] = value
    end
  end
  unlist(entry[1], letter)
  call('HSET', bin, entry[1], strung(fields))
  call('ZADD', binned_at, string.format('%.0f', at), entry[1])
end

-- Takes what has this dead id out of the bin. Returns its fields, name and value in turn; nil if it is not there.
local function take_from_bin(place)
  local text = call('HGET', bin, place)
  if not text then
    return nil
  end
  call('HDEL', bin, place)
  call('ZREM', binned_at, place)
  return unstrung(text)
end

-- Removes what has this dead id from the bin for good. Returns its fields as a table, and the bytes that this frees; nil if it is
-- not there.
local function remove_from_bin(place)
  local fields = take_from_bin(place)
  if not fields then
    return nil
  end
  local letter = fields_of({place, fields})
  return letter, free(letter)
end
