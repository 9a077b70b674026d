-- For the scripts that discard dead letters, after shared/indexes.lua and shared/bin.lua. They have, as further locals: `node` and
-- `facts`, the keys; `keeps`, whether the bin gets them; and of their arguments `facts_max` and `who`. KEYS[4] and ARGV[4...] are
-- as they say.
local done, places, messages, receivers, firsts = 0, {}, {}, {}, {}
local has_first = false

-- Discards one dead letter that `dead` has.
local function discard(entry, letter, job, at)
  if keeps then
    put_into_bin(entry, letter, at, {who = who, job = job})
  else
    take_out(entry[1], letter)
  end
  places[#places + 1] = entry[1]
  messages[#places] = cjson.encode(letter.id)
  receivers[#places] = cjson.encode(letter.receiver)
  firsts[#places] = letter.u or entry[1]
  has_first = has_first or letter.u ~= nil
end

-- Tells of those that were discarded now.
local function tell(job)
  local by = who ~= '' and ',"who":' .. cjson.encode(who) or ''
  local origins = has_first and ',"firsts":["' .. table.concat(firsts, '","') .. '"]' or ''
  local part = job ~= '' and ',"job":' .. cjson.encode(job) or ''
  local fact = '{"letters":["' .. table.concat(places, '","') .. '"],"messages":[' .. table.concat(messages, ',')
    .. '],"receivers":[' .. table.concat(receivers, ',') .. ']' .. origins .. by .. part .. '}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'discarded', 'd', fact)
end

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local job = KEYS[4] and string.sub(KEYS[4], #base + #'job:' + 1) or ''
local at = keeps and next_binned_at() or 0
for number = 4, #ARGV do
  local entry = call('XRANGE', dead, ARGV[number], ARGV[number])[1]
  if entry then
    discard(entry, fields_of(entry), job, at + number)
    done = done + 1
  elseif not keeps and remove_from_bin(ARGV[number]) then
    done = done + 1
  end
end

if KEYS[4] and done > 0 then
  call('HINCRBY', KEYS[4], 'done', done)
end
if #places > 0 then
  tell(job)
end
return done
