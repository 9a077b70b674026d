#!lua flags=allow-oom
-- Puts messages of an inbox back into the shared queues that they came from, under the same ids and in the same places, for
-- another receiver. A subject's message that other sessions still have open, or have settled, only leaves the inbox. What
-- came from no shared queue stays, and so does what came from a group that has no member any more: no session would take it
-- from there. What the receiver would try again stays too if there is no other session that has not failed it; and what it has
-- not failed, if its group has no other member. A repeated call answers the same again.
--
-- Returns {returned, id, ...}: how many have left the inbox, to a queue or because others have them; and the ids of those
-- that came from a queue and stay. Or 'fenced' if another server owns the session, or none has it.
--
-- KEYS[1]     s:<session>
-- KEYS[2]     inbox:<session>
-- KEYS[3]     facts
-- KEYS[4]     k:<scope> of this call
-- ARGV[1]     what all keys begin with; q:, qb:, members:, subject: and ptp: are built from it
-- ARGV[2]     token
-- ARGV[3]     name of the session
-- ARGV[4]     bound of the facts, entries
-- ARGV[5]     how long the answer is remembered, milliseconds
-- ARGV[6]     '1' if the receiver has failed them: they are not leased to it again; '2' if it has, and would try them
--             again; '0' if it has not, but gets nothing for the time being
-- ARGV[7...]  for each message: its id; how often it may have been sent
local session, inbox, facts, once = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local base, token, name, facts_max = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local once_ms, has_failed, tries_again, waits = ARGV[5], ARGV[6] ~= '0', ARGV[6] == '2', ARGV[6] == '0'
local call = redis.call

-- include shared/packed.lua

-- include shared/queues.lua

-- include shared/waiting.lua

-- include shared/receivers.lua

-- include shared/returning.lua

if call('HGET', session, 'owner') ~= token then
  return 'fenced'
end
local before = call('GET', once)
if before then
  return cjson.decode(before)
end

local queued, returned, answer = {}, {}, {0}
for at = 7, #ARGV, 2 do
  local id = ARGV[at]
  local outcome, queue = give_back(id, ARGV[at + 1], has_failed, tries_again, waits)
  if outcome == 'lapsed' or outcome == 'last' then
    answer[#answer + 1] = id
  elseif outcome then
    call('HDEL', inbox, id)
    call('HDEL', session, 'i:' .. id)
    returned[#returned + 1] = id
  end
  if outcome == 'queued' then
    queued[queue] = queued[queue] or {}
    table.insert(queued[queue], id)
  end
end

answer[1] = #returned
if #returned > 0 then
  local fact = '{"ended":[{"session":' .. cjson.encode(name) .. ',"reason":"returned","ids":['
    .. table.concat(returned, ',') .. ']}]}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', fact)
end
tell_returned(queued, facts, facts_max)
call('SET', once, cjson.encode(answer), 'PX', once_ms)
return answer
