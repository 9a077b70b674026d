#!lua flags=allow-oom
-- Moves sessions of all other servers to this one. Only a slice at a time, so that the store goes on serving in between;
-- a server of which nothing is left is forgotten.
--
-- A session that was in step with its former owner has accounted for the log up to the owner's cursor: that becomes its
-- own cursor, `at`. One that has an `at` already keeps it: it was being adopted when that owner died. What a half-written
-- commit has opened beyond it is taken back, because it will be taken from the log again. Whatever the sessions still
-- need of the log, their owner's `low` has kept; so this server's is lowered to it. Each session gets 1,000 more batch
-- numbers, for those that the former owner used.
--
-- Returns {name, record, name, record, ...} as moved, each record as HGETALL tells it; nothing: there are no more. Or
-- 'fenced' if this server has been superseded itself. After an unknown outcome, begin anew under another token.
--
-- KEYS[1]  nodes
-- KEYS[2]  node:<token>, the server that adopts
-- KEYS[3]  own:<token>
-- ARGV[1]  what all keys begin with; node:, own: and s: of the others are built from it
-- ARGV[2]  token
-- ARGV[3]  sessions to move at most; fewer are moved if they are large
local nodes, node, own = KEYS[1], KEYS[2], KEYS[3]
local base, token, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local most_fields = 100000
local call = redis.call

-- Takes back what lies beyond the session's cursor.
local function retract(key, at)
  for _, field in ipairs(call('HKEYS', key)) do
    local id = string.match(field, '^o:(%d+)$')
    if id and tonumber(id) > at then
      call('HDEL', key, field)
    end
  end
end

-- The record of a session as it is now that this server owns it; nil if it is not the other one's.
local function adopted(name, other, cursor, is_half_written)
  local key = base .. 's:' .. name
  local known = call('HMGET', key, 'owner', 'at', 'batch')
  if known[1] ~= other then
    return nil
  end
  local at = known[2] or cursor
  call('HSET', key, 'owner', token, 'at', at, 'batch', string.format('%.0f', (known[3] or 0) + 1000))
  call('SADD', own, name)
  if is_half_written then
    retract(key, tonumber(at))
  end
  return call('HGETALL', key)
end

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local answer, fields = {}, 0
for _, other in ipairs(call('SMEMBERS', nodes)) do
  if other ~= token and #answer < 2 * most and fields < most_fields then
    local former = base .. 'node:' .. other
    local left = base .. 'own:' .. other
    local cursor, low, seq, opening = unpack(call('HMGET', former, 'cursor', 'low', 'seq', 'opening'))
    if low and tonumber(low) < tonumber(call('HGET', node, 'low')) then
      call('HSET', node, 'low', low)
    end
    local is_half_written = opening and tonumber(opening) > tonumber(seq)
    local name = call('SPOP', left)
    while name do
      local record = adopted(name, other, cursor, is_half_written)
      if record then
        answer[#answer + 1] = name
        answer[#answer + 1] = record
        fields = fields + #record
      end
      name = #answer < 2 * most and fields < most_fields and call('SPOP', left)
    end
    if call('EXISTS', left) == 0 then
      call('DEL', former)
      call('SREM', nodes, other)
    end
  end
end
return answer
