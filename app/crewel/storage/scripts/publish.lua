#!lua
-- Appends messages to the log in the order given, and says so in one fact. All of them are appended or none.
--
-- Ids are microseconds of the store's clock, and one after another within a call; they rise even when the clock does not.
-- A message whose key is remembered was published before: it is not appended again, and has the id of the first time.
--
-- Returns {prev, id, ...}: the newest id before this call, then one id a message, negative if it was published before;
-- or 'fenced' if the server has been superseded.
--
-- KEYS[1]     node:<token>, the server that publishes
-- KEYS[2]     last
-- KEYS[3]     log
-- KEYS[4]     facts
-- KEYS[5...]  k:<scope> of each message that has a key, in their order
-- ARGV[1]     bound of the facts, entries
-- ARGV[2]     how long a key is remembered, milliseconds
-- ARGV[3...]  for each message: '1' if it has a key, else '0'; number of the further arguments; channel; body;
--             the further arguments: fields of the log's entry (s, x, q), each with its value
local node, last, log, facts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local facts_max, once_ms = ARGV[1], ARGV[2]
local call, format = redis.call, string.format

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local prev = tonumber(call('GET', last) or 0)
local now = call('TIME')
local id = math.max(prev, now[1] * 1000000 + now[2] - 1)
local first = id + 1
local answer, channels = {prev}, {}
local keyed = 4

local at = 3
while at <= #ARGV do
  local more = tonumber(ARGV[at + 1])
  local remembered = false
  local once
  if ARGV[at] == '1' then
    keyed = keyed + 1
    once = KEYS[keyed]
    remembered = call('GET', once)
  end
  if remembered then
    answer[#answer + 1] = -tonumber(remembered)
  else
    id = id + 1
    local text = format('%.0f', id)
    local channel = ARGV[at + 2]
    call('XADD', log, text .. '-0', 'c', channel, 'b', ARGV[at + 3], unpack(ARGV, at + 4, at + 3 + more))
    if once then
      call('SET', once, text, 'PX', once_ms)
    end
    answer[#answer + 1] = id
    channels[#channels + 1] = channel
  end
  at = at + 4 + more
end

if id >= first then
  call('SET', last, format('%.0f', id))
  -- The grammar of channels knows nothing that JSON would have to escape.
  local fact = format('{"first":%.0f,"channels":["%s"]}', first, table.concat(channels, '","'))
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'published', 'd', fact)
end
return answer
