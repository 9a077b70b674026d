#!lua flags=allow-oom
-- Notes what a server knows the store to have lost: messages that it was answered, and that were not in the store when that
-- was first met. No id is given a second time, so `last` is raised to the newest id that the server has seen; and each history
-- gets a new epoch, because something that a client has seen may be missing in it. A repeated call changes nothing.
--
-- Facts have the time of the store's clock. If that was set back by the change, this one is put behind those that were lost, so
-- that whoever has read them finds it.
--
-- Returns 1 if this was noted, 0 if it had been noted before.
--
-- KEYS[1]  last
-- KEYS[2]  met:<generation>
-- KEYS[3]  losses
-- KEYS[4]  facts
-- KEYS[5]  topics
-- ARGV[1]  what all keys begin with; topic: is built from it
-- ARGV[2]  token of the server
-- ARGV[3]  newest log id that the server has seen
-- ARGV[4]  number of the messages that it was answered and that are lost
-- ARGV[5]  bound of the facts, entries
-- ARGV[6]  the fact, a JSON object
local last, met, losses, facts, topics = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local base, token, seen, messages, facts_max, fact = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local call = redis.call

if call('HSETNX', met, token, messages) == 0 then
  return 0
end
if tonumber(call('GET', last) or 0) < tonumber(seen) then
  call('SET', last, seen)
end
for _, channel in ipairs(call('SMEMBERS', topics)) do
  local topic = base .. 'topic:' .. channel
  if call('HEXISTS', topic, 'epoch') == 1 then
    call('HSET', topic, 'epoch', seen)
  end
end
local now, newest = call('TIME'), call('XREVRANGE', facts, '+', '-', 'COUNT', 1)[1]
local id, behind_ms = '*', math.floor(seen / 1000) + 1000
local newest_ms = newest and tonumber(string.match(newest[1], '^%d+')) or 0  -- another server may have noted the same loss
if now[1] * 1000 + math.floor(now[2] / 1000) <= behind_ms - 1000 and newest_ms < behind_ms then
  id = string.format('%.0f-0', behind_ms)
end
call('HINCRBY', losses, 'times', 1)
call('HINCRBY', losses, 'messages', messages)
call('HSET', losses, 'newest', fact)
call('XADD', facts, 'MAXLEN', '~', facts_max, id, 't', 'lost', 'd', fact)
return 1
