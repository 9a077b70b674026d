-- For the scripts that name a session, and have as locals `call`, and `base`, what all keys begin with. Each node has a sorted
-- set of its sessions that are not stored; a member is a name, a space, and 'ptp' if the session takes addressed messages, else
-- '-'. The set of a dead node counts no more.

-- The sets of the nodes that live.
local function unstored_sets()
  local sets = {}
  for _, other in ipairs(call('SMEMBERS', base .. 'nodes')) do
    if call('EXISTS', base .. 'node:' .. other) == 1 then
      sets[#sets + 1] = base .. 'unstored:' .. other
    end
  end
  return sets
end

-- Whether a session of this name is in one of them, but for one of them.
local function is_unstored(name, but)
  for _, set in ipairs(unstored_sets()) do
    if set ~= but and #call('ZRANGEBYLEX', set, '[' .. name .. ' ', '(' .. name .. '!', 'LIMIT', 0, 1) > 0 then
      return true
    end
  end
  return false
end

-- How many sessions a subject has, stored or not, less those whose end has begun. `prefix` is what their names begin with, with
-- the slash at its end.
local function count_sessions(subject, prefix)
  local count = 0
  for _, name in ipairs(call('SMEMBERS', subject)) do
    count = count + 1 - call('HEXISTS', base .. 's:' .. name, 'ending')
  end
  local behind = string.sub(prefix, 1, -2) .. '0'  -- the character after the slash
  for _, set in ipairs(unstored_sets()) do
    count = count + call('ZLEXCOUNT', set, '[' .. prefix, '(' .. behind)
  end
  return count
end
