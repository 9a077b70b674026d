-- For the scripts that store dead letters, after shared/packed.lua and shared/indexes.lua. They have, as further locals: `log`, the key;
-- `letters_max`, the bound of the letters.

-- The message of a letter: a table of the log's fields, empty if it has gone.
local function message(inbox, id)
  local text = call('HGET', inbox, id)
  return text and unpacked(text) or fields_of(call('XRANGE', log, id .. '-0', id .. '-0')[1]) or {}
end

-- Stores a letter. An empty channel says that the message was stored. Returns the letter's place in `dead`.
local function bury(name, inbox, id, code, reason, attempts, channel, body, sender, qos, received)
  local more = {}
  if channel == '' then
    local known = message(inbox, id)
    channel, body, sender, qos, received = known.c or '', known.b or '', known.s or '', known.q or '', id .. '000'
    more = {'p', '1'}
    for _, field in ipairs({'r', 'n', 'x', 't'}) do
      if known[field] then
        more[#more + 1] = field
        more[#more + 1] = known[field]
      end
    end
    if known.r then
      call('INCR', base .. 'dead:returned')
    end
  end
  local place = call('XADD', dead, '*', 'id', id, 'received', received, 'receiver', name, 'code', code, 'reason', reason,
    'attempts', attempts, 'channel', channel, 'body', body, 'sender', sender, 'qos', qos, unpack(more))
  enlist(place, {code = code, receiver = name, channel = channel})
  return place
end

-- Removes the oldest letters beyond the bound, and counts them. Where the bound has been lowered, the rest of what is too
-- much goes with later calls.
local function keep_bound(buried)
  local beyond = buried > 0 and math.min(call('XLEN', dead) - letters_max, buried + 1000) or 0
  if beyond <= 0 then
    return
  end
  call('INCRBY', base .. 'dead:dropped', beyond)
  while beyond > 0 do
    local oldest = call('XRANGE', dead, '-', '+', 'COUNT', math.min(beyond, 100))
    for _, entry in ipairs(oldest) do
      take_out(entry[1], fields_of(entry))
    end
    beyond = beyond - #oldest
  end
end
