-- For the scripts that store dead letters. They have, as locals: `call`, redis.call; `log` and `dead`, the keys;
-- `letters_max`, the bound of the letters.

-- The message of a letter: a table of the log's fields, empty if it has gone.
local function message(inbox, id)
  local found = {}
  local packed = call('HGET', inbox, id)
  if packed then
    local at = 1
    while at <= #packed do
      local field, size, start = string.match(packed, '^(.)(%d+):()', at)
      at = start + size
      found[field] = string.sub(packed, start, at - 1)
    end
  else
    local entry = call('XRANGE', log, id .. '-0', id .. '-0')[1]
    for at = 1, entry and #entry[2] or 0, 2 do
      found[entry[2][at]] = entry[2][at + 1]
    end
  end
  return found
end

-- Stores the letter that ARGV describes from `at` on.
local function bury(name, inbox, at)
  local id, code, reason, attempts = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local known = {c = ARGV[at + 4], b = ARGV[at + 5], s = ARGV[at + 6]}
  if known.c == '' then
    known = message(inbox, id)
  end
  call('XADD', dead, 'MAXLEN', letters_max, '*', 'id', id, 'receiver', name, 'code', code, 'reason', reason,
    'attempts', attempts, 'channel', known.c or '', 'body', known.b or '', 'sender', known.s or '', 'qos', known.q or '')
end
