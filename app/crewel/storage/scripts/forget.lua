#!lua flags=allow-oom
-- Takes away the mark of a topic that was erased while messages of it waited: none does any more, or the topic was made again.
-- A repeated call changes nothing.
--
-- Returns 1 if there was a mark, else 0; or 'fenced' if the server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  topics
-- KEYS[3]  topic:<channel>
-- ARGV[1]  the channel
local node, topics, topic = unpack(KEYS)
local channel = ARGV[1]
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local count = call('HDEL', topic, 'erased')
if call('EXISTS', topic) == 0 then
  call('SREM', topics, channel)
end
return count
