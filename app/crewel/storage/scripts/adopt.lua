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
-- ARGV[1]  what all keys begin with; node:, own: and s: of the others are built from it
-- ARGV[2]  token
-- ARGV[3]  sessions to move at most; fewer are moved if they are large
-- ARGV[4]  size of a block of batch numbers
local nodes, node, own = KEYS[1], KEYS[2], KEYS[3]
local base, token, most, block = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local portion, most_fields = 50, 100000
local call = redis.call
local answer, moved, fields = {}, 0, 0

-- The record less what lies beyond the session's cursor, which is deleted.
local function retracted(key, record, at)
  local left = {}
  for place = 1, #record, 2 do
    local id = string.match(record[place], '^o:(%d+)$')
    if id and tonumber(id) > tonumber(at) then
      call('HDEL', key, record[place])
    else
      left[#left + 1] = record[place]
      left[#left + 1] = record[place + 1]
    end
  end
  return left
end

-- Makes this server the owner of a session of the other one.
local function adopt(name, other, cursor, is_half_written)
  local key = base .. 's:' .. name
  local record = call('HGETALL', key)
  local owner, at, batch = nil, cursor, 0
  for place = 1, #record, 2 do
    local field = record[place]
    if field == 'owner' then
      owner = record[place + 1]
    elseif field == 'at' then
      at = record[place + 1]
    elseif field == 'batch' then
      batch = record[place + 1]
    end
  end
  if owner ~= other then
    call('SREM', own, name)
    return
  end
  if is_half_written then
    record = retracted(key, record, at)
  end
  batch = string.format('%.0f', batch + block)
  call('HSET', key, 'owner', token, 'at', at, 'batch', batch)
  local next = #answer + 1
  answer[next], answer[next + 1], answer[next + 2], answer[next + 3] = name, at, batch, record
  moved = moved + 1
  fields = fields + #record
end

if call('EXISTS', node) == 0 then
  return 'fenced'
end

for _, other in ipairs(call('SMEMBERS', nodes)) do
  if other ~= token then
    local former = base .. 'node:' .. other
    local left = base .. 'own:' .. other
    local cursor, low, seq, opening = unpack(call('HMGET', former, 'cursor', 'low', 'seq', 'opening'))
    cursor, low = cursor or '0', low or '0'
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
      call('SREM', nodes, other)
    end
  end
end
return answer
