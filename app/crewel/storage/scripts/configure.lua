#!lua
-- Keeps the settings of a topic, and as many messages of its history as it may have now. Its epoch begins if it has none, or
-- is to be renewed because the store may have lost something. A repeated call changes nothing. Where other servers share the
-- store, what has changed lies in the log as well.
--
-- Returns the epoch; or 'fenced' if the server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  topics
-- KEYS[3]  topic:<channel>
-- KEYS[4]  h:<channel>
-- KEYS[5]  last
-- KEYS[6]  log
-- ARGV[1]  the channel
-- ARGV[2]  the settings, a JSON object; empty to leave them as they are
-- ARGV[3]  the epoch that begins
-- ARGV[4]  '1' to renew the epoch, else '0'
-- ARGV[5]  messages that the history may have; negative: any number
-- ARGV[6]  the token, if other servers share the store, else empty
local node, topics, topic, history, last, log = unpack(KEYS)
local channel, settings, epoch, is_renewed, most, told_by = unpack(ARGV)
local call = redis.call

-- include shared/changed.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local before = call('HGET', topic, 'settings')
local has_changed = call('SADD', topics, channel) == 1 or is_renewed == '1' or (settings ~= '' and settings ~= before)
call('HSETNX', topic, 'epoch', epoch)
if is_renewed == '1' then
  call('HSET', topic, 'epoch', epoch)
end
if settings ~= '' then
  call('HSET', topic, 'settings', settings)
end
if tonumber(most) >= 0 and call('XLEN', history) > tonumber(most) then
  call('XTRIM', history, 'MAXLEN', most)
  call('HSET', topic, 'past', 1)
  has_changed = true
end
local now, holds = unpack(call('HMGET', topic, 'settings', 'epoch'))
if has_changed then
  note_change(told_by, channel, '{"kind":"configured","epoch":"' .. holds .. '","settings":' .. (now or '{}') .. '}')
end
return holds
