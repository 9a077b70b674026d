-- For the scripts that put messages into inboxes of sessions that may have so many. They have, as locals: `call`, redis.call;
-- `base`, what all keys begin with.

-- Whether one more message of so many bytes is within the bounds; 0 is none. To count is long work for a session that has
-- thousands waiting: what was counted is remembered for a second, and counts until then if there was room.
local function has_room(name, session, size, max_entries, max_bytes)
  if max_bytes == 0 and (max_entries == 0 or call('HLEN', session) < max_entries) then
    return true
  end
  local memo = base .. 'k:waiting ' .. name
  local entries, bytes = string.match(call('GET', memo) or '', '^(%d+) (%d+)$')
  local function is_within()
    return (max_entries == 0 or entries + 1 <= max_entries) and (max_bytes == 0 or bytes + size <= max_bytes)
  end
  if not entries or not is_within() then
    entries, bytes = 0, 0
    local record = call('HGETALL', session)
    for at = 1, #record, 2 do
      if string.match(record[at], '^[oi]:') then
        entries = entries + 1
        bytes = bytes + string.match(record[at + 1], '^%d+:(%d+)')
      end
    end
    if not is_within() then
      return false
    end
    call('SET', memo, '', 'PX', 1000)
  end
  call('SET', memo, string.format('%.0f %.0f', entries + 1, bytes + size), 'KEEPTTL')
  return true
end
