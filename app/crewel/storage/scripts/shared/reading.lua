-- Reads histories, the newest entry first, without what has expired, also before expire.lua has removed it. Takes `call` and `now`.
local most_at_once = 64

local function field_of(entry, name)
  for at = 1, #entry[2], 2 do
    if entry[2][at] == name then
      return entry[2][at + 1]
    end
  end
end

local function has_expired(entry)
  local expiry = field_of(entry, 'e')
  return expiry and tonumber(expiry) <= now
end

local function size_of(entry)
  return #(field_of(entry, 'b') or '')
end

local function id_of(entry)
  return tonumber(entry[1]:match('^%d+'))
end

-- A reader of the entries of a history from one place back to another; the first of them are read `portion` at once.
local function reader_of(history, from, to, portion)
  return {history = history, from = from, to = to, portion = portion, entries = {}, at = 0}
end

-- The next entry, or nil.
local function next_of(reader)
  while true do
    reader.at = reader.at + 1
    local entry = reader.entries[reader.at]
    if entry and not has_expired(entry) then
      return entry
    elseif not entry then
      if reader.is_at_end then
        return nil
      end
      reader.entries = call('XREVRANGE', reader.history, reader.from, reader.to, 'COUNT', reader.portion)
      reader.is_at_end = #reader.entries < reader.portion
      if #reader.entries > 0 then
        reader.from = '(' .. reader.entries[#reader.entries][1]
      end
      reader.at, reader.portion = 0, math.min(2 * reader.portion, most_at_once)
    end
  end
end

-- Whether an entry may be added to what is read: as long as there is room. The one that goes beyond the bytes may be.
local function spend(room, entry)
  if room.entries < 1 or room.bytes < 0 then
    return false
  end
  room.entries = room.entries - 1
  if room.is_bounded then
    room.bytes = room.bytes - size_of(entry)
  end
  return true
end

local function room_for(entries, max_bytes)
  return {entries = entries, bytes = math.max(max_bytes, 0), is_bounded = max_bytes >= 0}
end

-- The entries that there is room for, newest first.
local function read(reader, room)
  local found, entry = {}, nil
  repeat
    entry = room.entries > 0 and next_of(reader) or nil
    if entry and spend(room, entry) then
      found[#found + 1] = entry
    else
      entry = nil
    end
  until not entry
  return found
end

local function turned(entries)
  local oldest_first = {}
  for at = #entries, 1, -1 do
    oldest_first[#oldest_first + 1] = entries[at]
  end
  return oldest_first
end
