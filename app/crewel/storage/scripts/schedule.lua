#!lua
-- Keeps a message that is to be published later. It has an id of its own, one of the log's numbers.
--
-- Returns {prev, id, 1 if its key is remembered else 0}: the newest id before this call; the id is that of the first time then,
-- and 0 if its account has as many scheduled messages as it may have. Or 'fenced' if the server has been superseded.
--
-- KEYS[1]     node:<token>, the server that accepts it
-- KEYS[2]     last
-- KEYS[3]     facts
-- KEYS[4]     scheduled
-- KEYS[5]     scheduled:messages
-- KEYS[6]     scheduled:held
-- KEYS[7]     k:<scope> of its key; may be missing
-- ARGV[1]     bound of the facts, entries
-- ARGV[2]     how long a key is remembered, milliseconds
-- ARGV[3]     when it has to be published, milliseconds since 1970
-- ARGV[4]     messages that its account may have scheduled; 0: any number
-- ARGV[5]     the key as its publisher gave it, JSON, or empty
-- ARGV[6]     its account, or empty
-- ARGV[7]     channel
-- ARGV[8...]  its further fields (b, s, x, q, d) with their values
local node, last, facts, scheduled, messages, held, once = unpack(KEYS)
local facts_max, once_ms, due, most, key = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local account, channel = ARGV[6], ARGV[7]
local call, format = redis.call, string.format

-- include shared/packed.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local prev = tonumber(call('GET', last) or 0)
local first = once and call('GET', once)
if first then
  return {prev, tonumber(first), 1}
elseif most > 0 and tonumber(call('HGET', held, account) or 0) >= most then
  return {prev, 0, 0}
end

local now = call('TIME')
local id = math.max(prev, now[1] * 1000000 + now[2] - 1) + 1
local text = format('%.0f', id)
call('SET', last, text)
call('HSET', messages, text, packed({'p', account, 'c', channel, unpack(ARGV, 8)}))
call('ZADD', scheduled, due, text)
call('HINCRBY', held, account, 1)
if once then
  call('SET', once, text, 'PX', once_ms)
end
local fact = format('{"id":%s,"channel":"%s","at":%s%s}', text, channel, due, once and ',"key":' .. key or '')
call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'scheduled', 'd', fact)
return {prev, id, 0}
