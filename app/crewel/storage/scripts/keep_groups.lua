#!lua flags=allow-oom
-- Lets these groups, and no others, keep their messages while they have no member: each has the empty name as a member for
-- good, which no session has. What waits for a group that is kept no more, and has no other member, lapses. A repeated call
-- changes nothing.
--
-- Returns nothing; or 'fenced' if this server has been superseded.
--
-- KEYS[1]     node:<token>
-- KEYS[2]     kept
-- KEYS[3]     facts
-- ARGV[1]     what all keys begin with; members:, q: and qb: are built from it
-- ARGV[2]     bound of the facts, entries
-- ARGV[3...]  the queues of the groups
local node, kept, facts = KEYS[1], KEYS[2], KEYS[3]
local base, facts_max, name = ARGV[1], ARGV[2], ''
local call = redis.call

-- include shared/queues.lua

-- include shared/groups.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local wanted, ended = {}, {}
for at = 3, #ARGV do
  wanted[ARGV[at]] = true
  call('SADD', base .. 'members:' .. ARGV[at], name)
  call('SADD', kept, ARGV[at])
end
for _, queue in ipairs(call('SMEMBERS', kept)) do
  if not wanted[queue] then
    call('SREM', kept, queue)
    leave(queue, ended)
  end
end
tell_ended(ended)
return {}
