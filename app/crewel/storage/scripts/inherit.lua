#!lua flags=allow-oom
-- Moves sessions of dead nodes to this one, a slice at a time, so that the store continues serving in between. A node is dead
-- when its lease has ended. Before its first session moves, its record is renamed: from then on the store refuses every step
-- of it, whatever it believes. The record stays, and keeps the log for its sessions, until release.lua; so do its groups, for a node
-- that starts meanwhile. What an heir that has died itself had not finished is continued.
--
-- A session that was in step with its former owner gets the owner's cursor as its own, `at`, and a new block of batch
-- numbers, as in adopt.lua.
--
-- Returns {tokens, slice, last}: the dead nodes of which no session is left, whose records still keep the log; for each session
-- moved: name, `at`, `batch`, and the record as HGETALL gave it before; the newest id by then. Or 'fenced' if this node is dead itself. After an
-- unknown outcome, start again under another token.
--
-- KEYS[1]  nodes
-- KEYS[2]  node:<token>, the heir
-- KEYS[3]  own:<token>
-- KEYS[4]  tags
-- KEYS[5]  last
-- ARGV[1]  what all keys begin with; node:, left:, lease:, own:, unstored: and s: of the others are built from it
-- ARGV[2]  token
-- ARGV[3]  sessions to move at most; fewer are moved if they are large
-- ARGV[4]  size of a block of batch numbers
-- ARGV[5]...  tokens of nodes that are dead for certain: their leases do not count
local nodes, node, own, tags = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local base, token, most, block = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local call = redis.call
local answer, step = {}, nil  -- what this node has taken is beyond what its record says: no session is in step

-- include shared/adopting.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local dead, finished = {}, {}
for place = 5, #ARGV do
  dead[ARGV[place]] = true
end

-- From here on every step of a dead node is refused: also of one that is the heir of another.
local others = call('SMEMBERS', nodes)
for _, other in ipairs(others) do
  local record, lease = base .. 'node:' .. other, base .. 'lease:' .. other
  if other ~= token and call('EXISTS', record) == 1 and (dead[other] or call('EXISTS', lease) == 0) then
    call('RENAME', record, base .. 'left:' .. other)
    call('DEL', lease)
    call('UNLINK', base .. 'unstored:' .. other)
  end
end

-- Whether this node is the heir of another one, now or since an earlier slice.
local function inherits(other)
  local left = base .. 'left:' .. other
  if call('EXISTS', left) == 0 then
    return false  -- it lives
  end
  local heir = call('HGET', left, 'heir')
  if heir and heir ~= token then
    if call('EXISTS', base .. 'node:' .. heir) == 1 then
      return false
    end
    -- Sessions that the dead heir had not committed need what this record keeps, until they have all moved on.
    local theirs = base .. 'left:' .. heir
    local low, others_low = call('HGET', left, 'low'), call('HGET', theirs, 'low')
    if others_low and tonumber(low or 0) < tonumber(others_low) then
      call('HSET', theirs, 'low', low or '0')
    end
  end
  call('HSET', left, 'heir', token)
  return true
end

local known = call('HGETALL', tags)
for _, other in ipairs(others) do
  if other ~= token and inherits(other) then
    local former, theirs = base .. 'left:' .. other, base .. 'own:' .. other
    adopt_some(other, former, theirs)
    if call('EXISTS', theirs) == 0 then
      finished[#finished + 1] = other
      for place = 1, #known, 2 do
        if known[place + 1] == other then
          call('HSET', tags, known[place], token)
        end
      end
    end
  end
end
return {finished, answer, call('GET', KEYS[5]) or '0'}
