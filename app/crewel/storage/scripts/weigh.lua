#!lua flags=no-writes
-- Counts the messages of streams and of packed ones in hashes, and their bytes, by the account that is charged for each. It stops
-- after about so many of them. Changes nothing.
--
-- Returns {number of keys that are done, place in the next one, account, bytes, messages, account, ...}: `p` of a message says its
-- account. Without it, the subject of its sender stands in its place, as `client/joe`; empty if it has none.
--
-- KEYS[1...]  log, scheduled:messages, h:<channel>, qb:<queue> and inbox:<session>, any of them
-- ARGV[1]     where to begin in the first one: what the call before said, or empty
-- ARGV[2]     messages
local place, most = ARGV[1], tonumber(ARGV[2])
local call = redis.call
-- What an entry takes in the store beside its texts, bytes, about.
local entry_cost = 100

-- include shared/packed.lua

local bytes, messages, seen = {}, {}, 0

local function add(payer, sender, size)
  local account = payer or string.match(sender or '', '^client/[^/]+') or ''
  bytes[account] = (bytes[account] or 0) + size + entry_cost
  messages[account] = (messages[account] or 0) + 1
  seen = seen + 1
end

-- The next part of a stream. Returns where the rest begins; empty if there is none.
local function weigh_stream(key)
  local entries = call('XRANGE', key, place ~= '' and '(' .. place or '-', '+', 'COUNT', most)
  for _, entry in ipairs(entries) do
    local payer, sender, size = nil, nil, 0
    local fields = entry[2]
    for at = 1, #fields, 2 do
      local value = fields[at + 1]
      size = size + #value
      if fields[at] == 'p' then
        payer = value
      elseif fields[at] == 's' then
        sender = value
      end
    end
    add(payer, sender, size)
  end
  return #entries == most and entries[#entries][1] or ''
end

-- The same of a hash.
local function weigh_hash(key)
  local cursor, pairs_ = unpack(call('HSCAN', key, place ~= '' and place or '0', 'COUNT', most))
  for at = 1, #pairs_, 2 do
    local fields = unpacked(pairs_[at + 1])
    add(fields.p, fields.s, #pairs_[at + 1])
  end
  return cursor ~= '0' and cursor or ''
end

local done = 0
while done < #KEYS and seen < most do
  local key = KEYS[done + 1]
  local kind = call('TYPE', key).ok
  if kind == 'stream' then
    place = weigh_stream(key)
  elseif kind == 'hash' then
    place = weigh_hash(key)
  else
    place = ''
  end
  if place == '' then
    done = done + 1
  end
end

local answer = {done, place}
for account, size in pairs(bytes) do
  answer[#answer + 1] = account
  answer[#answer + 1] = size
  answer[#answer + 1] = messages[account]
end
return answer
