#!lua flags=no-writes
-- Reads with which messages of several topics subscriptions begin, and the newest id of the log of the same instant. What has
-- expired is left out, also before expire.lua has removed it.
--
-- Each history is read in one of three ways. 'newest': of the entries of all these histories, so many of the newest at most as
-- there is room for, and so many of each. 'since': what came after an entry, in all these histories not more than one entry
-- beyond the room. 'alone': so many of the newest, whatever the room.
--
-- Returns {last, past, ...}, and each past is {epoch, {entry, ...}, newest, before, reaches}: the epoch is empty if there is
-- none; entries are as XRANGE tells them, oldest first; the id of the newest entry; that of the newest one up to ARGV[2]; and
-- 1 if the entry `since` is there, else 0. An entry 0, before the first, counts as there as long as nothing has left the
-- history in this epoch. Or 'fenced' if the server has been superseded.
--
-- KEYS[1]     node:<token>, the server that asks
-- KEYS[2]     last
-- KEYS[3...]  h:<channel> and topic:<channel> of each topic
-- ARGV[1]     bytes of bodies after which no more are read, of each of the three; the one that goes beyond is returned too; -1:
--             any
-- ARGV[2]     log id
-- ARGV[3]     the room, entries
-- ARGV[4]     now, by the server's clock, microseconds since 1970: what has expired by then is left out; 0: nothing
-- ARGV[5...]  for each topic how it is read, how many entries at most, and the entry `since` or 0
local max_bytes, taken, entries_max, now = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local call = redis.call

if call('EXISTS', KEYS[1]) == 0 then
  return 'fenced'
end

-- include shared/reading.lua

-- Whether the history has lost nothing since its epoch began.
local function is_whole(history, topic)
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

local function newest_up_to(history, place)
  local entry = next_of(reader_of(history, place, '-', 1))
  return entry and id_of(entry) or 0
end

-- A heap of readers, the one with the newest entry first.
local heap = {}

local function swap(one, other)
  heap[one], heap[other] = heap[other], heap[one]
end

local function push(reader)
  heap[#heap + 1] = reader
  local at = #heap
  while at > 1 and heap[at].id > heap[math.floor(at / 2)].id do
    swap(at, math.floor(at / 2))
    at = math.floor(at / 2)
  end
end

local function sink()
  local at = 1
  while 2 * at <= #heap do
    local child = 2 * at
    if child < #heap and heap[child + 1].id > heap[child].id then
      child = child + 1
    end
    if heap[at].id >= heap[child].id then
      return
    end
    swap(at, child)
    at = child
  end
end

local function move_on(reader, entry)
  reader.entry, reader.id = entry, entry and id_of(entry) or 0
end

local answer = {tonumber(call('GET', KEYS[2]) or 0)}
local missed = room_for(entries_max + 1, max_bytes)
for at = 3, #KEYS, 2 do
  local history, topic, about = KEYS[at], KEYS[at + 1], 5 + (at - 3) / 2 * 3
  local way, most, since = ARGV[about], tonumber(ARGV[about + 1]), ARGV[about + 2]
  local found, newest, reaches = {}, nil, 0
  if way == 'newest' then
    local reader = reader_of(history, '+', '-', 1)
    move_on(reader, next_of(reader))
    reader.found, reader.left, newest = found, most, reader.id
    if reader.entry and most > 0 then
      push(reader)
    end
  else
    newest = newest_up_to(history, '+')
    if way == 'alone' then
      found = read(reader_of(history, '+', '-', most_at_once), room_for(most, max_bytes))
    elseif since == '0' then
      reaches = is_whole(history, topic)
      found = read(reader_of(history, '+', '-', most_at_once), missed)
    else
      reaches = #call('XRANGE', history, since .. '-0', since .. '-0')
      found = read(reader_of(history, '+', '(' .. since .. '-0', most_at_once), missed)
    end
  end
  local before = newest <= tonumber(taken) and newest or newest_up_to(history, taken .. '-0')
  answer[#answer + 1] = {call('HGET', topic, 'epoch') or '', found, newest, before, reaches}
end

local room = room_for(entries_max, max_bytes)
while heap[1] and spend(room, heap[1].entry) do
  local reader = heap[1]
  reader.found[#reader.found + 1] = reader.entry
  reader.left = reader.left - 1
  move_on(reader, reader.left > 0 and next_of(reader) or nil)
  if not reader.entry then
    swap(1, #heap)
    heap[#heap] = nil
  end
  sink()
end
for at = 2, #answer do
  answer[at][2] = turned(answer[at][2])
end
return answer
