#!lua flags=allow-oom
-- Ends a session, whose end was begun by close.lua and is passed by its owner's cursor: everything of it leaves the store,
-- and the same step makes the dead letters of its messages, and facts about their ends. A repeated call finds nothing and
-- changes nothing.
--
-- A dead letter takes its message from the inbox or the log; if it has gone from there, the dead letter says so by being empty.
-- What came from a shared queue and may go back there does so, if it can, and else ends as its dead letter says; without one
-- it lapses. A subject's message that another session of the subject has open, or has settled, ends here without a dead
-- letter. What lies in the inbox and the owner does not name has not reached the owner: it goes back as well, or it is a dead
-- letter that was sent again, and becomes a dead letter once more. The session's memberships of groups end; with the last
-- member goes what waits.
--
-- Returns {{id, ...}, {id, ...}, {id, ...}}: the ids in `dead` of the dead letters in their order; the log ids of what has gone
-- back or is left to others, who may have settled it; those of what has lapsed. Three times {} if the session had ended before;
-- or 'fenced' if another server owns it.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     inbox:<session>
-- KEYS[3]     own:<token>
-- KEYS[4]     subject:<subject>
-- KEYS[5]     log
-- KEYS[6]     dead
-- KEYS[7]     facts
-- ARGV[1]     what all keys begin with; dead:, q:, qb:, members: and ptp: are built from it
-- ARGV[2]     token
-- ARGV[3]     name of the session
-- ARGV[4]     bound of the facts, entries
-- ARGV[5]     bound of the dead letters, entries
-- ARGV[6]     bound of the dead letters, bytes; 0: none
-- ARGV[7]     number of the facts about ends
-- ARGV[8]     number of the messages that may go back
-- ARGV[9...]  these facts, JSON objects; for each of these messages its id and how often it may have been sent; then dead
-- letters,
--             eleven arguments each: id, code, reason, attempts, and of a message that was never stored the channel, body,
--             sender, qos and when it was received, which are empty otherwise; the code as the receiver gave it, if another
--             one counts; its earlier attempts, JSON, or empty
local session, inbox, own, subject, log, dead, facts = unpack(KEYS)
local base, token, name, facts_max, letters_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local letters_bytes = tonumber(ARGV[6])
local returning_at = 9 + ARGV[7]
local letters_at = returning_at + 2 * ARGV[8]
local dead_session = 'communication.noConnection.dead'
local call = redis.call

-- include shared/packed.lua

-- include shared/shares.lua

-- include shared/indexes.lua

-- include shared/bin.lua

-- include shared/letters.lua

-- include shared/queues.lua

-- include shared/groups.lua

-- include shared/waiting.lua

-- include shared/receivers.lua

-- include shared/returning.lua

local owner = call('HGET', session, 'owner')
if not owner then
  return {{}, {}, {}}
elseif owner ~= token then
  return 'fenced'
end

local letters, ended = {}, {}
for at = 9, returning_at - 1 do  -- unpack fails with more than about 8,000
  ended[#ended + 1] = ARGV[at]
end
local decided, queued, returned, lapsed, unknown = {}, {}, {}, {}, {}

local function note(ids, reason)
  if #ids > 0 then
    ended[#ended + 1] = '{"session":' .. cjson.encode(name) .. ',"reason":' .. reason .. ',"ids":[' .. table.concat(ids, ',')
      .. ']}'
  end
end

-- Gives a message back, if it can go. Returns whether it has ended. What its receiver has got may have a dead letter, and does
-- not lapse before that is known.
local function has_gone_back(id, attempts, may_lapse)
  local outcome, queue = give_back(id, attempts, false)
  if outcome == 'queued' then
    queued[queue] = queued[queue] or {}
    table.insert(queued[queue], id)
  end
  if outcome == 'queued' or outcome == 'others' or outcome == 'settled' then
    returned[#returned + 1] = id
  elseif outcome == 'lapsed' and may_lapse then
    lapsed[#lapsed + 1] = id
  else
    return false
  end
  return true
end

local record = call('HGETALL', session)
for at = 1, #record, 2 do
  local pattern = string.match(record[at], '^p:(.*)$')
  for group in pairs(pattern and groups_of(pattern, record[at + 1]) or {}) do
    leave(group, ended)
  end
end

-- What has ended by the owner's word.
for at = 9, returning_at - 1 do
  local fact = cjson.decode(ARGV[at])
  for _, id in ipairs(fact.ids) do
    local text = string.format('%.0f', id)
    decided[text] = true
    finish(text, call('HGET', session, 'i:' .. text), fact.reason == 'settled')
  end
end

-- What may go back, and what the owner does not know.
local stays = {}
for at = returning_at, letters_at - 1, 2 do
  decided[ARGV[at]] = true
  if not has_gone_back(ARGV[at], ARGV[at + 1], false) then
    stays[ARGV[at]] = true
  end
end
for at = letters_at, #ARGV, 11 do
  decided[ARGV[at]] = true
end
for _, id in ipairs(call('HKEYS', inbox)) do
  if not decided[id] then
    local attempts = string.match(call('HGET', session, 'i:' .. id) or '', '^%d+') or '0'
    if not has_gone_back(id, attempts, true) then
      unknown[#unknown + 1] = id
    end
  end
end
table.sort(unknown)

-- The dead letters; not of what has gone.
local gone = {}
for _, id in ipairs(returned) do
  gone[id] = true
end
for at = letters_at, #ARGV, 11 do
  if not gone[ARGV[at]] then
    letters[#letters + 1] = dead_letter(name, inbox, unpack(ARGV, at, at + 10))
  end
  if stays[ARGV[at]] then
    stays[ARGV[at]] = nil
    note({ARGV[at]}, '"dead","code":' .. cjson.encode(ARGV[at + 1]))
  end
end
for id in pairs(stays) do
  lapsed[#lapsed + 1] = id
end
for _, id in ipairs(unknown) do
  letters[#letters + 1] = dead_letter(name, inbox, id, dead_session, 'the session has ended', '0', '')
end
note(unknown, '"dead","code":"' .. dead_session .. '"')
note(returned, '"returned"')
note(lapsed, '"lapsed"')
keep_bound(#letters)
call('UNLINK', session, inbox)
call('SREM', own, name)
call('SREM', subject, name)

tell_ended(ended)
tell_returned(queued, facts, facts_max)
local fact = '{"session":' .. cjson.encode(name) .. '}'
call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'closed-session', 'd', fact)
return {letters, returned, lapsed}
