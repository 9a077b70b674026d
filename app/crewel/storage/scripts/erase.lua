#!lua flags=allow-oom
-- Removes a topic, or only its history, and then begins a new epoch. A repeated call finds nothing. Of a topic of which
-- messages may still wait, a mark stays until forget.lua takes it away. Where other servers share the store, the log says what
-- has been done.
--
-- Returns how many messages the history had; or 'fenced' if the server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  topics
-- KEYS[3]  topic:<channel>
-- KEYS[4]  h:<channel>
-- KEYS[5]  expiry
-- KEYS[6]  facts
-- KEYS[7]  last
-- KEYS[8]  log
-- ARGV[1]  the channel
-- ARGV[2]  bound of the facts, entries; without meaning where a new epoch begins
-- ARGV[3]  the epoch that begins; empty to remove all of the topic
-- ARGV[4]  '1' to leave the mark, else '0'
-- ARGV[5]  the token, if other servers share the store, else empty
-- ARGV[6]  what the log calls it
local node, topics, topic, history, expiry, facts, last, log = unpack(KEYS)
local channel, facts_max, epoch, leaves_mark, told_by, kind = unpack(ARGV)
local portion, most = 500, 10000
local call = redis.call

-- include shared/changed.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

-- Forgets when the entries expire: of so many, for the rest expire.lua finds nothing when the time has come.
local function forget_expiry()
  local after, seen = '-', 0
  while seen < most and call('EXISTS', expiry) == 1 do
    local members = {}
    local entries = call('XRANGE', history, after, '+', 'COUNT', portion)
    for at, entry in ipairs(entries) do
      members[at] = string.match(entry[1], '^%d+') .. ' ' .. channel
    end
    if #members > 0 then
      call('ZREM', expiry, unpack(members))
    end
    if #entries < portion then
      return
    end
    after = '(' .. entries[portion][1]
    seen = seen + portion
  end
end

local count = call('XLEN', history)
-- An idle topic has no history. Where this is a repeat, a message may have come in between, and made the topic again.
if kind == 'ended' and count > 0 then
  return 0
end
forget_expiry()
call('UNLINK', history)
if epoch ~= '' then
  if call('EXISTS', topic) == 1 then
    call('HSET', topic, 'epoch', epoch)
    call('HDEL', topic, 'past')
  end
else
  local is_marked = call('HEXISTS', topic, 'erased') == 1
  if call('UNLINK', topic) + call('SREM', topics, channel) > 0 and not is_marked then
    local fact = '{"channel":"' .. channel .. '","messages":' .. count .. '}'
    call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'erased', 'd', fact)
  end
  if leaves_mark == '1' then
    call('SADD', topics, channel)
    call('HSET', topic, 'erased', 1)
  end
end
local settings = call('HGET', topic, 'settings') or '{}'
note_change(told_by, channel, '{"kind":"' .. kind .. '","epoch":"' .. epoch .. '","settings":' .. settings .. '}')
return count
