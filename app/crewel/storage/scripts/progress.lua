#!lua flags=no-writes
-- Tells how far the pipeline is with the facts and events, and how far these go, all at the same instant. Changes nothing.
--
-- Returns for each of the two of which the pipeline has stored something its position, JSON; how many entries were ever added;
-- how many there are; and its name.
--
-- KEYS[1]  pipeline:positions
-- KEYS[2]  facts
-- KEYS[3]  events
local positions = KEYS[1]
local states = {}
for name, stream in pairs({ facts = KEYS[2], events = KEYS[3] }) do
  local position = redis.call('HGET', positions, name)
  if position then
    local facts = { ['entries-added'] = 0, length = 0 }
    if redis.call('EXISTS', stream) == 1 then
      local info = redis.call('XINFO', 'STREAM', stream)
      for at = 1, #info, 2 do
        facts[info[at]] = info[at + 1]
      end
    end
    states[#states + 1] = { position, facts['entries-added'], facts.length, name }
  end
end
return states
