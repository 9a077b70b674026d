-- Takes a scheduled message out of the list. It must be there, and `base` be known.
local function unschedule(id)
  local messages, held = base .. 'scheduled:messages', base .. 'scheduled:held'
  local message = call('HGET', messages, id)
  local colon = string.find(message, ':', 1, true)  -- its first field is `p`, the account
  local account = string.sub(message, colon + 1, colon + string.sub(message, 2, colon - 1))
  call('HDEL', messages, id)
  call('ZREM', base .. 'scheduled', id)
  call('HDEL', base .. 'scheduled:refused', id)
  if call('HINCRBY', held, account, -1) <= 0 then
    call('HDEL', held, account)
  end
end
