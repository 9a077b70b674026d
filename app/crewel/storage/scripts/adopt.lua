#!lua flags=allow-oom
-- Moves sessions of all other servers to this one. Only a slice at a time, so that the store continues serving in between;
-- a server of which nothing is left is forgotten.
--
-- A session that was in step with its former owner has accounted for the log up to the owner's cursor: that becomes its
-- own cursor, `at`. One that has an `at` already keeps it: it was being adopted when that owner died. What a commit that
-- was half written has opened beyond it is taken back, because it will be taken from the log again. Whatever the sessions
-- still need of the log, their owner's `low` has kept; so this server's is lowered to it. Each session gets a new block of
-- batch numbers, because the former owner has used some of the last.
--
-- Returns for each session moved: name, `at`, `batch`, and the record as HGETALL gave it before; nothing: there are no
-- more. Or 'fenced' if this server has been superseded itself. After an unknown outcome, start again under another token.
--
-- KEYS[1]  nodes
-- KEYS[2]  node:<token>, the server that adopts
-- KEYS[3]  own:<token>
-- ARGV[1]  what all keys begin with; node:, left:, own:, unstored:, groups: and s: of the others are built from it
-- ARGV[2]  token
-- ARGV[3]  sessions to move at most; fewer are moved if they are large
-- ARGV[4]  size of a block of batch numbers
local nodes, node, own = KEYS[1], KEYS[2], KEYS[3]
local base, token, most, block = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local portion, most_fields = 50, 100000
local call = redis.call
local answer, moved, fields = {}, 0, 0

-- include shared/adopting.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

for _, other in ipairs(call('SMEMBERS', nodes)) do
  if other ~= token then
    local former = base .. 'node:' .. other
    if call('EXISTS', former) == 0 then
      former = base .. 'left:' .. other  -- its heir has died, too
    end
    local left = base .. 'own:' .. other
    local cursor, low, seq, opening = unpack(call('HMGET', former, 'cursor', 'low', 'seq', 'opening'))
    cursor, low = cursor or '0', low or '0'
    call('HDEL', former, 'tag')  -- if it was a node: its commits have to ask for the owner of each session from now on
    if tonumber(low) < tonumber(call('HGET', node, 'low')) then
      call('HSET', node, 'low', low)
    end
    local is_half_written = opening and tonumber(opening) > tonumber(seq)
    while moved < most and fields < most_fields and call('EXISTS', left) == 1 do
      local names = call('SPOP', left, math.min(portion, most - moved))
      call('SADD', own, unpack(names))
      for _, name in ipairs(names) do
        adopt(name, other, cursor, is_half_written)
      end
    end
    if call('EXISTS', left) == 0 then
      call('DEL', former)
      call('UNLINK', base .. 'unstored:' .. other, base .. 'groups:' .. other)
      call('SREM', nodes, other)
    end
  end
end
return answer
