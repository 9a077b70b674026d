#!lua flags=allow-oom
-- Ends a session, whose end was begun by close.lua and is passed by its owner's cursor: everything of it leaves the store,
-- and in the same step come the letters and facts that tell what became of its messages. A repeated call finds nothing
-- and changes nothing.
--
-- A letter takes its message from the inbox or the log; if it has gone from there, the letter says so by being empty. What
-- lies in the inbox and the owner says nothing of is a letter that was sent again and has not reached the owner: it becomes
-- a letter once more.
--
-- Returns {id, ...}: the ids in `dead` of the letters in their order, {} if the session had ended before; or 'fenced' if
-- another server owns it.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     inbox:<session>
-- KEYS[3]     own:<token>
-- KEYS[4]     subject:<subject>
-- KEYS[5]     log
-- KEYS[6]     dead
-- KEYS[7]     facts
-- ARGV[1]     what all keys begin with; dead: is built from it
-- ARGV[2]     token
-- ARGV[3]     name of the session
-- ARGV[4]     bound of the facts, entries
-- ARGV[5]     bound of the letters, entries
-- ARGV[6]     number of the facts about ends
-- ARGV[7...]  these facts, JSON objects; then letters, nine arguments each: id, code, reason, attempts, and of a message
--             that was never stored the channel, body, sender, qos and when it was received, which are empty otherwise
local session, inbox, own, subject, log, dead, facts = unpack(KEYS)
local base, token, name, facts_max, letters_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local letters_at = 7 + ARGV[6]
local dead_session = 'communication.noConnection.dead'
local call = redis.call

-- include shared/packed.lua

-- include shared/indexes.lua

-- include shared/letters.lua

-- The ids of the inbox of which ARGV does not say how they end.
local function untold()
  local told, ids = {}, {}
  for at = 7, letters_at - 1 do
    for _, id in ipairs(cjson.decode(ARGV[at]).ids) do
      told[string.format('%.0f', id)] = true
    end
  end
  for at = letters_at, #ARGV, 9 do
    told[ARGV[at]] = true
  end
  for _, id in ipairs(call('HKEYS', inbox)) do
    if not told[id] then
      ids[#ids + 1] = id
    end
  end
  table.sort(ids)
  return ids
end

local owner = call('HGET', session, 'owner')
if not owner then
  return {}
elseif owner ~= token then
  return 'fenced'
end

local letters, ended = {}, {unpack(ARGV, 7, letters_at - 1)}
for at = letters_at, #ARGV, 9 do
  letters[#letters + 1] = bury(name, inbox, unpack(ARGV, at, at + 8))
end
local returned = untold()
for _, id in ipairs(returned) do
  letters[#letters + 1] = bury(name, inbox, id, dead_session, 'the session has ended', '0', '')
end
if #returned > 0 then
  ended[#ended + 1] = '{"session":' .. cjson.encode(name) .. ',"reason":"dead","code":"' .. dead_session .. '","ids":['
    .. table.concat(returned, ',') .. ']}'
end
keep_bound(#letters)
call('UNLINK', session, inbox)
call('SREM', own, name)
call('SREM', subject, name)

if #ended > 0 then
  local fact = '{"ended":[' .. table.concat(ended, ',') .. ']}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', fact)
end
local fact = '{"session":' .. cjson.encode(name) .. '}'
call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'closed-session', 'd', fact)
return letters
