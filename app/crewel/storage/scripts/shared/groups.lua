-- For the scripts that make sessions members of groups, or end that, after shared/packed.lua and shared/queues.lua. They have,
-- as further locals: `name`, of the session; `facts`, the key, and `facts_max`, its bound, entries.

-- A list as JSON; the library makes an object of an empty one.
local function list_of(values)
  return #values > 0 and cjson.encode(values) or '[]'
end

-- The queues of the groups that options of a pattern ask for, as keys of a table. Options are a JSON object, or a list of some.
local function groups_of(pattern, options)
  local queues = {}
  local decoded = options and options ~= '' and cjson.decode(options) or {}
  for _, each in ipairs(decoded[1] and decoded or {decoded}) do
    if type(each.group) == 'string' then
      queues['group:' .. pattern .. ' ' .. each.group] = true
    end
  end
  return queues
end

-- Takes all that waits out of a queue. Returns the ids, best first.
local function empty(queue)
  local ids = {}
  while true do
    local places, portion = call('ZRANGE', base .. 'q:' .. queue, 0, 999), {}
    for at, place in ipairs(places) do
      portion[at] = string.sub(place, 3)
      ids[#ids + 1] = portion[at]
    end
    if #places == 0 then
      return ids
    end
    dequeue(queue, portion, places)
  end
end

-- Ends the membership. With the last member goes what waits: the fact of that is added to `ended`.
local function leave(queue, ended)
  call('SREM', base .. 'members:' .. queue, name)
  if call('EXISTS', base .. 'members:' .. queue) == 0 then
    local lapsed = empty(queue)
    if #lapsed > 0 then
      ended[#ended + 1] = '{"session":' .. cjson.encode(queue) .. ',"reason":"lapsed","ids":[' .. table.concat(lapsed, ',')
        .. ']}'
    end
  end
end

-- Notes the fact of what has ended: JSON objects.
local function tell_ended(ended)
  if #ended > 0 then
    call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', '{"ended":[' .. table.concat(ended, ',') .. ']}')
  end
end
