#!lua
-- Takes discarded dead letters out of the bin: they are dead letters again, under new ids. Those that have gone are left out.
--
-- Returns a list of the old and the new id in turn; or 'fenced' if the server has been superseded.
--
-- KEYS[1]     node:<token>, the server that asks
-- KEYS[2]     dead
-- KEYS[3]     facts
-- ARGV[1]     what all keys begin with; dead: is built from it
-- ARGV[2]     bound of the facts, entries
-- ARGV[3]     who wants it, or empty
-- ARGV[4...]  dead ids
local node, dead, facts = KEYS[1], KEYS[2], KEYS[3]
local base, facts_max, who = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call

-- include shared/shares.lua

-- include shared/indexes.lua

-- include shared/bin.lua

-- The fields of the entry that `dead` gets: those of before, the id that the dead letter had first, and the message that was sent
-- in its place if it is the original of an edited one.
local function entry_of(place, fields)
  local entry = {}
  local first, edited_as = place, nil
  for at = 1, #fields, 2 do
    local name, value = fields[at], fields[at + 1]
    if name == 'u' then
      first = value
    elseif name == 'b:as' or name == 'a' then
      edited_as = (name == 'b:as' or not edited_as) and value or edited_as
    elseif string.sub(name, 1, 2) ~= 'b:' then
      entry[#entry + 1] = name
      entry[#entry + 1] = value
    end
  end
  entry[#entry + 1] = 'u'
  entry[#entry + 1] = first
  if edited_as then
    entry[#entry + 1] = 'a'
    entry[#entry + 1] = edited_as
  end
  return entry, first
end

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local moved, told = {}, {letters = {}, as = {}, firsts = {}, messages = {}, receivers = {}}
for number = 4, #ARGV do
  local fields = take_from_bin(ARGV[number])
  if fields then
    local letter = fields_of({ARGV[number], fields})
    local entry, first = entry_of(ARGV[number], fields)
    local place = call('XADD', dead, '*', unpack(entry))
    enlist(place, letter)
    moved[#moved + 1] = ARGV[number]
    moved[#moved + 1] = place
    local each = {letters = ARGV[number], as = place, firsts = first, messages = letter.id, receivers = letter.receiver}
    for name, text in pairs(each) do
      table.insert(told[name], text)
    end
  end
end

if #moved > 0 then
  told.who = who ~= '' and who or nil
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'restored', 'd', cjson.encode(told))
end
return moved
