#!lua flags=no-writes
-- Reads the history of a topic, and the newest id of the log of the same instant. What has expired is left out, also before
-- expire.lua has removed it.
--
-- Returns {epoch, last, {entry, ...}, length}: the epoch is empty if there is none, entries are as XRANGE tells them, oldest
-- first; or 'fenced' if the server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  h:<channel>
-- KEYS[3]  topic:<channel>
-- KEYS[4]  last
-- ARGV[1]  entries to be returned at most, the newest of them; -1: all
-- ARGV[2]  bytes of bodies after which no more are read, the newest first; the one that goes beyond is returned too; -1: any
-- ARGV[3]  now, by the server's clock, microseconds since 1970: what has expired by then is left out; 0: nothing
local node, history, topic, last = unpack(KEYS)
local most, max_bytes, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
end

-- include shared/reading.lua

local portion = most < 0 and most_at_once or math.max(math.min(most, most_at_once), 1)
local found = read(reader_of(history, '+', '-', portion), room_for(most < 0 and math.huge or most, max_bytes))
return {call('HGET', topic, 'epoch') or '', tonumber(call('GET', last) or 0), turned(found), call('XLEN', history)}
