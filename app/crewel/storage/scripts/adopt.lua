#!lua flags=allow-oom
-- Moves sessions of all other servers to this one. Only a slice at a time, so that the store continues serving in between;
-- a server of which nothing is left is forgotten.
--
-- While this server has no session, its cursor is set to that of the former owners, the lowest of several: then nearly all
-- sessions are in step with it at once, and no commit has to say so of each. A session that was in step with another cursor
-- has accounted for the log up to there: that becomes its own cursor, `at`. One that has an `at` already keeps it: it was
-- being adopted when that owner died. What a commit that was half written has opened beyond it is taken back, because it will
-- be taken from the log again. Whatever the sessions still need of the log, their owner's `low` has kept; so this server's is
-- lowered to it. Each session gets a new block of batch numbers, because the former owner has used some of the last.
--
-- Returns the cursor of this server; then for each session moved: name, how far it has accounted for the log, `batch`, and the
-- record as HGETALL gave it before; no session: there are no more. Or 'fenced' if this server has been superseded itself.
-- After an unknown outcome, start again under another token.
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
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
end

-- The record of another server.
local function record_of(other)
  local key = base .. 'node:' .. other
  return call('EXISTS', key) == 1 and key or base .. 'left:' .. other  -- its heir has died, too
end

local others = {}
for _, other in ipairs(call('SMEMBERS', nodes)) do
  if other ~= token then
    others[#others + 1] = other
  end
end

local step = call('HGET', node, 'cursor')  -- a session that has accounted for the log up to there needs no `at`
if call('EXISTS', own) == 0 then
  for _, other in ipairs(others) do
    if call('EXISTS', base .. 'own:' .. other) == 1 then
      local cursor = call('HGET', record_of(other), 'cursor') or '0'
      step = tonumber(cursor) < tonumber(step) and cursor or step
    end
  end
  call('HSET', node, 'cursor', step)
end
local answer = {step}

-- include shared/adopting.lua

for _, other in ipairs(others) do
  local former, left = record_of(other), base .. 'own:' .. other
  local low = call('HGET', former, 'low') or '0'
  call('HDEL', former, 'tag')  -- if it was a node: its commits have to ask for the owner of each session from now on
  if tonumber(low) < tonumber(call('HGET', node, 'low')) then
    call('HSET', node, 'low', low)
  end
  adopt_some(other, former, left)
  if call('EXISTS', left) == 0 then
    call('DEL', former)
    call('UNLINK', base .. 'unstored:' .. other, base .. 'groups:' .. other)
    call('SREM', nodes, other)
  end
end
return answer
