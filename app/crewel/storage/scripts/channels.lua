#!lua flags=no-writes
-- Tells the channels of messages in a shared queue, a portion of it in each call: so many that the store is soon there for
-- others again. Changes nothing.
--
-- Returns {place, channel, ...}: the place behind which the next call begins, '' if this was the last portion; and each channel
-- of this portion once.
--
-- KEYS[1]  q:<queue>
-- KEYS[2]  qb:<queue>
-- ARGV[1]  the place behind which to begin, '' for all
-- ARGV[2]  messages to be read at most
-- ARGV[3]  bytes of them after which no more are read; the one that goes beyond is read too
local queue, bodies = KEYS[1], KEYS[2]
local from, most, max_bytes = ARGV[1] ~= '' and '(' .. ARGV[1] or '-', tonumber(ARGV[2]), tonumber(ARGV[3])
local call = redis.call

-- include shared/packed.lua

local places = call('ZRANGEBYLEX', queue, from, '+', 'LIMIT', 0, most)
local known, found, read = {}, {#places == most and places[most] or ''}, 0
for _, place in ipairs(places) do
  local message = call('HGET', bodies, string.sub(place, 3)) or ''
  local channel = unpacked(message).c
  if channel and not known[channel] then
    known[channel] = true
    found[#found + 1] = channel
  end
  read = read + #message
  if read > max_bytes then
    found[1] = place
    break
  end
end
return found
