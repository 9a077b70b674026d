#!lua flags=allow-oom
-- Forgets dead nodes whose sessions all are this node's, and by now so in a commit of it: from then on its own record keeps
-- what they need of the log. Those of another heir stay.
--
-- Returns how many were forgotten; or 'fenced' if this node is dead itself.
--
-- KEYS[1]  nodes
-- KEYS[2]  node:<token>, the heir
-- ARGV[1]  what all keys begin with; left: and groups: of the others are built from it
-- ARGV[2]  token
-- ARGV[3]...  tokens of the dead nodes
local nodes, node = KEYS[1], KEYS[2]
local base, token = ARGV[1], ARGV[2]
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local count = 0
for place = 3, #ARGV do
  local left = base .. 'left:' .. ARGV[place]
  if call('HGET', left, 'heir') == token then
    call('DEL', left)
    call('UNLINK', base .. 'groups:' .. ARGV[place])
    call('SREM', nodes, ARGV[place])
    count = count + 1
  end
end
return count
