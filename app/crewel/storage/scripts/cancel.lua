#!lua flags=allow-oom
-- Takes scheduled messages out of the list for good.
--
-- Returns how many were there; or 'fenced' if the server has been superseded.
--
-- KEYS[1]     node:<token>, the server that asks
-- KEYS[2]     facts
-- ARGV[1]     what all keys begin with; scheduled and those below it are built from it
-- ARGV[2]     bound of the facts, entries
-- ARGV[3]     name of the operator, or of the publisher's session, or empty
-- ARGV[4]     the account whose messages may go; empty: any
-- ARGV[5...]  ids of scheduled messages
local node, facts = KEYS[1], KEYS[2]
local base, facts_max, who, account = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call

-- include shared/packed.lua

-- include shared/scheduled.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end
local ids, channels = {}, {}
for at = 5, #ARGV do
  local id = ARGV[at]
  local text = call('HGET', base .. 'scheduled:messages', id)
  local message = text and unpacked(text)
  if message and (account == '' or message.p == account) then
    ids[#ids + 1] = id
    channels[#channels + 1] = message.c
    unschedule(id)
  end
end
if #ids > 0 then
  -- The grammar of channels knows nothing that JSON would have to escape.
  local fact = '{"ids":[' .. table.concat(ids, ',') .. '],"channels":["' .. table.concat(channels, '","') .. '"]'
  fact = fact .. (who ~= '' and ',"who":' .. cjson.encode(who) or '') .. '}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'cancelled', 'd', fact)
end
return #ids
