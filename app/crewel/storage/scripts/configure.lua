#!lua
-- Keeps the settings of a topic. Its epoch begins if it has none. A repeated call changes nothing.
--
-- Returns the epoch; or 'fenced' if the server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  topics
-- KEYS[3]  topic:<channel>
-- ARGV[1]  the channel
-- ARGV[2]  the settings, a JSON object
-- ARGV[3]  the epoch that begins
local node, topics, topic = unpack(KEYS)
local channel, settings, epoch = unpack(ARGV)
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
end

call('SADD', topics, channel)
call('HSETNX', topic, 'epoch', epoch)
call('HSET', topic, 'settings', settings)
return call('HGET', topic, 'epoch')
