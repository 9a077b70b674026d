#!lua flags=no-writes
-- Counts the messages of streams and of packed ones in hashes, and their bytes, by the account that is charged for each. It stops
-- after about so many of them. Changes nothing.
--
-- Returns {number of keys that are done, place in the next one, account, bytes, messages, account, ...}: `p` of a message says its
-- account; without it that is the subject of its sender; it is empty if there is none. A copy of what lay in the log, in an
-- inbox, is charged to the subject of the inbox.
--
-- KEYS[1...]  log, h:<channel>, qb:<queue> and inbox:<session>, any of them
-- ARGV[1]     where to begin in the first one: what the call before said, or empty
-- ARGV[2]     messages
local place, most = ARGV[1], tonumber(ARGV[2])
local call = redis.call
-- What an entry takes in the store beside its texts, bytes, about.
local entry_cost = 100

-- include shared/packed.lua

local bytes, messages, seen = {}, {}, 0

-- The account of a name such as client/joe/1; anonymous sessions have none.
local function account_of(name)
  local subject = string.match(name, '^client/([^/]+)')
  return subject and subject ~= 'anonymous' and 'subject ' .. subject or ''
end

local function add(account, size)
  bytes[account] = (bytes[account] or 0) + size + entry_cost
  messages[account] = (messages[account] or 0) + 1
  seen = seen + 1
end

-- The next part of a stream. Returns where the rest begins; empty if there is none.
local function weigh_stream(key)
  local entries = call('XRANGE', key, place ~= '' and '(' .. place or '-', '+', 'COUNT', most)
  for _, entry in ipairs(entries) do
    local payer, sender, size = nil, '', 0
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
    add(payer or account_of(sender), size)
  end
  return #entries == most and entries[#entries][1] or ''
end

-- The same of a hash. An inbox has the name of its session behind this.
local function weigh_hash(key)
  local owner = string.match(key, ':inbox:(.*)$')
  local cursor, pairs_ = unpack(call('HSCAN', key, place ~= '' and place or '0', 'COUNT', most))
  for at = 1, #pairs_, 2 do
    local fields = unpacked(pairs_[at + 1])
    local account = fields.p or account_of(fields.s or '')
    if owner and not fields.t then
      account = account_of(owner)
    end
    add(account, #pairs_[at + 1])
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
