-- For the scripts that put messages into shared queues or take them out, after shared/packed.lua. They have, as locals:
-- `call`, redis.call; `base`, what all keys begin with.
--
-- A shared queue is a sorted set `q:` whose members, `<9 - priority>:<id>`, are in the order of their texts, and a hash `qb:`
-- with the messages: packed like those of an inbox, and also `a`, how often they may have been sent, and `f`, the receivers
-- that failed, each only if there is something to say.

-- The member of a queue's order.
local function place_of(id, priority)
  return (9 - priority) .. ':' .. id
end

-- The place of a message in a queue; nil if it is not there.
local function find_place(queue, id)
  for priority = 9, 0, -1 do
    local place = place_of(id, priority)
    if call('ZSCORE', base .. 'q:' .. queue, place) then
      return place
    end
  end
end

-- Puts a message, packed, into a queue.
local function enqueue(queue, id, message, priority, expires)
  local now = call('TIME')
  call('ZADD', base .. 'q:' .. queue, 0, place_of(id, priority))
  call('HSET', base .. 'qb:' .. queue, id, message)
  call('ZADD', base .. 'queues', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)), queue)
  if tonumber(expires) > 0 then
    call('ZADD', base .. 'expiry', string.format('%.0f', math.ceil(expires / 1000)), id .. ' ' .. queue)
  end
end

-- Takes messages out of a queue: their ids, and their places in its order.
local function dequeue(queue, ids, places)
  if #ids == 0 then
    return
  end
  local members = {}
  for at, id in ipairs(ids) do
    members[at] = id .. ' ' .. queue
  end
  call('ZREM', base .. 'q:' .. queue, unpack(places))
  call('HDEL', base .. 'qb:' .. queue, unpack(ids))
  call('ZREM', base .. 'expiry', unpack(members))
  if call('EXISTS', base .. 'q:' .. queue) == 0 then
    call('ZREM', base .. 'queues', queue)
  end
end
