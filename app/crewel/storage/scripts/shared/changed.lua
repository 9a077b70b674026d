-- Notes in the log that a topic has changed, so that other nodes learn of it in order with its messages: `w` is empty, since it
-- waits for no session, and `k` is the token. Nothing without a token, on a server that shares its store with no other.
local function note_change(token, channel, change)
  if token == '' then
    return
  end
  local now = redis.call('TIME')
  local prev = tonumber(redis.call('GET', last) or 0)
  local id = string.format('%.0f', math.max(prev, now[1] * 1000000 + now[2] - 1) + 1)
  redis.call('XADD', log, id .. '-0', 'c', channel, 'b', change, 'w', '{}', 'k', token)
  redis.call('SET', last, id)
end
