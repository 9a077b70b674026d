-- For the scripts that give a subject's messages to sessions or take them away. They have, as locals: `call`, redis.call;
-- `base`, what all keys begin with.
--
-- Who has such a message open is a member of the set `ptp:<id> <queue>`; for whom it has ended without being settled, with a
-- `!` before the name, as long as others have it open: it is not given to those again.
local function receivers_of(id, queue)
  return base .. 'ptp:' .. id .. ' ' .. queue
end

-- The sessions that may have messages of a queue that gives each to one of them: those of a subject, or the members of a group,
-- with an empty name if the group keeps its messages.
local function takers_of(queue)
  local subject = string.match(queue, '^one:client/(.*)$')
  return call('SMEMBERS', subject and base .. 'subject:' .. subject or base .. 'members:' .. queue)
end

-- Whether any session has the message open; and the names of those for whom it has ended, as one text.
local function who_has(receivers)
  local is_open, ended = false, {}
  for _, member in ipairs(call('SMEMBERS', receivers)) do
    if string.sub(member, 1, 1) == '!' then
      ended[#ended + 1] = string.sub(member, 2)
    else
      is_open = true
    end
  end
  table.sort(ended)
  return is_open, table.concat(ended, ' ')
end

-- Notes that a message has ended for a session: settled, it is settled for the subject.
local function finish_for(name, id, queue, is_settled)
  local receivers = receivers_of(id, queue)
  if is_settled then
    call('UNLINK', receivers)
  elseif call('SREM', receivers, name) == 1 then
    if who_has(receivers) then
      call('SADD', receivers, '!' .. name)
    else
      call('UNLINK', receivers)
    end
  end
end
