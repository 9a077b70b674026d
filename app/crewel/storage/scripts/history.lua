#!lua flags=no-writes
-- Reads the history of a topic, and the newest id of the log of the same instant. What has expired is left out, also before
-- expire.lua has removed it.
--
-- Returns {epoch, last, {entry, ...}, length, 1 if the entry `since` is there else 0}: the epoch is empty if there is none,
-- entries are as XRANGE tells them, oldest first; or 'fenced' if the server has been superseded. An entry 0, before the first,
-- counts as there as long as nothing has left the history in this epoch.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  h:<channel>
-- KEYS[3]  topic:<channel>
-- KEYS[4]  last
-- ARGV[1]  entries to be returned at most, the newest of them; -1: all
-- ARGV[2]  log id: only what came after it; -1: everything
-- ARGV[3]  bytes of bodies after which no more are read, the newest first; the one that goes beyond is returned too; -1: any
-- ARGV[4]  now, by the server's clock, microseconds since 1970: what has expired by then is left out; 0: nothing
local node, history, topic, last = unpack(KEYS)
local most, since = tonumber(ARGV[1]), ARGV[2]
local max_bytes, now = tonumber(ARGV[3]), tonumber(ARGV[4])
local portion = max_bytes < 0 and 1000 or 64
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local function has_expired(entry)
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'e' then
      return tonumber(entry[2][at + 1]) <= now
    end
  end
  return false
end

local function size_of(entry)
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'b' then
      return #entry[2][at + 1]
    end
  end
  return 0
end

-- The entries after a place, newest first.
local function newest_after(place)
  local found, before, size = {}, '+', 0
  while most < 0 or #found < most do
    local wanted = most < 0 and portion or math.min(most - #found, portion)
    local entries = call('XREVRANGE', history, before, place, 'COUNT', wanted)
    for _, entry in ipairs(entries) do
      if not has_expired(entry) then
        found[#found + 1] = entry
        size = size + size_of(entry)
        if max_bytes >= 0 and size > max_bytes then
          return found
        end
      end
    end
    if #entries < wanted then
      break
    end
    before = '(' .. entries[#entries][1]
  end
  return found
end

-- Whether the history has lost nothing since its epoch began.
local function is_whole()
  local epoch, past = unpack(call('HMGET', topic, 'epoch', 'past'))
  if not epoch or past then
    return 0
  elseif call('EXISTS', history) == 0 then
    return 1
  end
  local about = call('XINFO', 'STREAM', history)
  for at = 1, #about, 2 do
    if about[at] == 'entries-added' then
      return about[at + 1] == call('XLEN', history) and 1 or 0
    end
  end
  return 0
end

local reaches, place = 0, '-'
if since == '0' then
  reaches = is_whole()
elseif since ~= '-1' then
  reaches = #call('XRANGE', history, since .. '-0', since .. '-0')
  place = '(' .. since .. '-0'
end
local found = newest_after(place)
local entries = {}
for at = #found, 1, -1 do
  entries[#entries + 1] = found[at]
end
return {call('HGET', topic, 'epoch') or '', tonumber(call('GET', last) or 0), entries, call('XLEN', history), reaches}
