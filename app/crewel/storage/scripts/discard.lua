#!lua flags=allow-oom
-- Throws dead letters away. Those that have gone already are left out.
--
-- Returns how many there were; or 'fenced' if the server has been superseded.
--
-- KEYS[1]     node:<token>, the server that asks
-- KEYS[2]     dead
-- KEYS[3]     facts
-- KEYS[4]     job:<id> that this is part of, which counts them; may be missing
-- ARGV[1]     what all keys begin with; dead: is built from it
-- ARGV[2]     bound of the facts, entries
-- ARGV[3]     who wants it, or empty
-- ARGV[4...]  ids in `dead`
local node, dead, facts = KEYS[1], KEYS[2], KEYS[3]
local base, facts_max, who = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call

-- include shared/indexes.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local places, messages, receivers = {}, {}, {}
for at = 4, #ARGV do
  local letter = fields_of(call('XRANGE', dead, ARGV[at], ARGV[at])[1])
  if letter then
    take_out(ARGV[at], letter)
    places[#places + 1] = ARGV[at]
    messages[#places] = cjson.encode(letter.id)
    receivers[#places] = cjson.encode(letter.receiver)
  end
end

if #places > 0 then
  if KEYS[4] then
    call('HINCRBY', KEYS[4], 'done', #places)
  end
  local by = who ~= '' and ',"who":' .. cjson.encode(who) or ''
  local job = KEYS[4] and ',"job":' .. cjson.encode(string.match(KEYS[4], 'job:(.*)$')) or ''
  local fact = '{"letters":["' .. table.concat(places, '","') .. '"],"messages":[' .. table.concat(messages, ',')
    .. '],"receivers":[' .. table.concat(receivers, ',') .. ']' .. by .. job .. '}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'discarded', 'd', fact)
end
return #places
