#!lua flags=allow-oom
-- Forgets tags of former nodes with which this node has no session any more. Tags that lead to another node stay.
--
-- Returns how many were forgotten; or 'fenced' if this node is dead itself.
--
-- KEYS[1]  tags
-- KEYS[2]  node:<token>
-- ARGV[1]  token
-- ARGV[2]...  tags
local tags, node, token = KEYS[1], KEYS[2], ARGV[1]
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local count = 0
for place = 2, #ARGV do
  if call('HGET', tags, ARGV[place]) == token then
    count = count + call('HDEL', tags, ARGV[place])
  end
end
return count
