#!lua flags=allow-oom
-- Notes which groups of consumers have members at a node, or have none there any more. Other nodes look at a number again and
-- again, which rises when there is a member, and read the groups when it differs. A repeated call does no harm.
--
-- Returns the number; or 'fenced' if the node has been superseded.
--
-- KEYS[1]     node:<token>
-- KEYS[2]     groups:<token>
-- ARGV[1]     SADD for groups that have a member now, SREM for those that have none
-- ARGV[2...]  their queues
local node, groups = KEYS[1], KEYS[2]

if redis.call('EXISTS', node) == 0 then
  return 'fenced'
end
redis.call(ARGV[1], groups, unpack(ARGV, 2))
return redis.call('HINCRBY', node, 'groups', ARGV[1] == 'SADD' and 1 or 0)
