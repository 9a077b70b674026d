#!lua flags=allow-oom
-- Takes messages out of a shared queue for good, and says how they ended; those that die leave dead letters. A repeated call
-- finds fewer. Nothing lapses that waits for a group with members, of whichever node.
--
-- Returns {count, id, ...}: how many there were, and the ids in `dead` of the dead letters in their order; or 'fenced' if the
-- server has been superseded.
--
-- KEYS[1]     node:<token>, the server that asks
-- KEYS[2]     log
-- KEYS[3]     dead
-- KEYS[4]     facts
-- ARGV[1]     what all keys begin with; q:, qb:, members: and dead: are built from it
-- ARGV[2]     bound of the facts, entries
-- ARGV[3]     bound of the dead letters, entries
-- ARGV[4]     bound of the dead letters, bytes; 0: none
-- ARGV[5]     the queue
-- ARGV[6]     how they end, in one word
-- ARGV[7]     error code of the dead letters; empty to make none
-- ARGV[8]     the reason that they give
-- ARGV[9...]  log ids; none: all that waits, at most a thousand
local node, log, dead, facts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local base, facts_max, letters_max, letters_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local queue, ending, code, reason, most = ARGV[5], ARGV[6], ARGV[7], ARGV[8], 1000
local call = redis.call

-- include shared/packed.lua

-- include shared/queues.lua

-- include shared/shares.lua

-- include shared/indexes.lua

-- include shared/bin.lua

-- include shared/letters.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local ids, places = {}, {}
if ending == 'lapsed' and call('EXISTS', base .. 'members:' .. queue) == 1 then
  return {0}
elseif #ARGV < 9 then
  places = call('ZRANGE', base .. 'q:' .. queue, 0, most - 1)
  for at, place in ipairs(places) do
    ids[at] = string.sub(place, 3)
  end
end
for at = 9, #ARGV do
  local place = find_place(queue, ARGV[at])
  if place then
    ids[#ids + 1], places[#places + 1] = ARGV[at], place
  end
end

-- What waited for one of a subject's sessions waited for the subject.
local receiver = string.match(queue, '^one:(.*)$') or queue
local letters, bodies = {}, base .. 'qb:' .. queue
for _, id in ipairs(code ~= '' and ids or {}) do
  local fields = unpacked(call('HGET', bodies, id) or '')
  letters[#letters + 1] = dead_letter(receiver, bodies, id, code, reason, fields.a or '0', '')
end
keep_bound(#letters)
dequeue(queue, ids, places)
if #ids > 0 then
  local more = code ~= '' and ',"code":' .. cjson.encode(code) or ''
  local fact = '{"ended":[{"session":' .. cjson.encode(queue) .. ',"reason":"' .. ending .. '"' .. more .. ',"ids":['
    .. table.concat(ids, ',') .. ']}]}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', fact)
end
return {#ids, unpack(letters)}
