-- For the scripts that give messages of an inbox back to the shared queues that they came from, after shared/packed.lua,
-- shared/queues.lua, shared/waiting.lua and shared/receivers.lua. They have, as further locals: `session` and `inbox`, the
-- keys; `name`, of the session.

-- Whether a queue that gives each message to one session has a session that has not failed this one, besides the receiver.
local function has_another(queue, failed)
  failed = ' ' .. failed .. ' ' .. name .. ' '
  for _, other in ipairs(takers_of(queue)) do
    if other ~= '' and not string.find(failed, ' ' .. other .. ' ', 1, true) then
      return true
    end
  end
  return false
end

-- Gives a message back, with so many attempts; the receiver is noted if it has failed it, and so is for whom a subject's
-- message has ended already. Nothing is taken out of the inbox. The receiver keeps it if it `tries_again` and no other session
-- is left that has not failed it; or if it `waits`, and its group has no other member: a queue ends with the last member.
-- Returns nil if the message came from no shared queue; 'queued'; 'others' if further sessions of the subject still have it
-- open; 'settled' if one of them has settled it; 'lapsed' if the group has no member any more; 'last' if the receiver keeps
-- it. And the queue.
local function give_back(id, attempts, has_failed, tries_again, waits)
  local text = call('HGET', session, 'i:' .. id)
  local priority, expires, source = origin_of(text or '')
  local message = source ~= '' and call('HGET', inbox, id)
  if not message then
    return nil
  end
  local fields, kept, is_group = unpacked(message), {}, string.sub(source, 1, 6) == 'group:'
  if is_group and call('EXISTS', base .. 'members:' .. source) == 0 then
    return 'lapsed', source
  elseif (tries_again and not is_common(source) and not has_another(source, fields.f or ''))
    or (waits and is_group and not has_another(source, '')) then
    return 'last', source
  end
  if is_common(source) then
    local receivers = receivers_of(id, source)
    if call('SREM', receivers, name) == 0 then
      return 'settled', source
    end
    local is_open, ended = who_has(receivers)
    if is_open then
      return 'others', source
    elseif ended ~= '' then
      fields.f = fields.f and fields.f .. ' ' .. ended or ended
      call('UNLINK', receivers)
    end
  end
  if has_failed and not string.find(' ' .. (fields.f or '') .. ' ', ' ' .. name .. ' ', 1, true) then
    fields.f = fields.f and fields.f .. ' ' .. name or name
  end
  fields.a = attempts ~= '0' and attempts or nil
  for field, value in pairs(fields) do
    kept[#kept + 1] = field
    kept[#kept + 1] = value
  end
  enqueue(source, id, packed(kept), priority, expires)
  return 'queued', source
end

-- Notes for a message of an inbox that came from a subject's queue that this receiver has it no more: settled, it is settled
-- for the subject; else others may still have it open.
local function finish(id, text, is_settled)
  local _, _, source = origin_of(text or '')
  if is_common(source) then
    finish_for(name, id, source, is_settled)
  end
end

-- The fact of what is queued again: `queued` has the ids by queue.
local function tell_returned(queued, facts, facts_max)
  for queue, ids in pairs(queued) do
    local fact = '{"queue":' .. cjson.encode(queue) .. ',"ids":[' .. table.concat(ids, ',') .. ']}'
    call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'returned', 'd', fact)
  end
end
