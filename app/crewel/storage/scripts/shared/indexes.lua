-- For the scripts that store dead letters or take them out. They have, as locals: `call`, redis.call; `base`, what all keys
-- begin with; `dead`, the key.
--
-- Each value that letters can be asked for by has a stream, in which its letters have the ids that they have in `dead`; and
-- the values that there are lie in a sorted set, so that all with the same beginning can be found.
local indexed = {'code', 'receiver', 'channel'}

-- The fields of an entry of a stream, as a table; nil if there is no entry.
local function fields_of(entry)
  if not entry then
    return nil
  end
  local fields = {}
  for at = 1, #entry[2], 2 do
    fields[entry[2][at]] = entry[2][at + 1]
  end
  return fields
end

-- Enters a letter into the indexes. What is new there is written a second time: the store sets four kilobytes aside for the
-- first entry of a stream, and nothing when it restores one.
local function enlist(place, letter)
  for _, field in ipairs(indexed) do
    local value = letter[field]
    if value ~= '' then
      local key = base .. 'dead:' .. field .. ':' .. value
      call('XADD', key, place, '', '')
      if call('ZADD', base .. 'dead:' .. field .. 's', 0, value) == 1 then
        redis.pcall('RESTORE', key, 0, call('DUMP', key), 'REPLACE')
      end
    end
  end
end

-- Takes a letter out, and out of the indexes.
local function take_out(place, letter)
  call('XDEL', dead, place)
  for _, field in ipairs(indexed) do
    local value = letter[field] or ''
    local key = base .. 'dead:' .. field .. ':' .. value
    if call('XDEL', key, place) == 1 and call('XLEN', key) == 0 then
      call('DEL', key)
      call('ZREM', base .. 'dead:' .. field .. 's', value)
    end
  end
end
