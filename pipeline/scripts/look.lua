#!lua flags=no-writes
-- Tells how far each of some streams goes, all at the same instant and without the entries themselves.
--
-- Returns for each stream five values: id of the newest entry that it ever had, how many entries were ever added, how many there
-- are, the id of the oldest one that is there, and the largest id that was deleted on its own; of a stream that does not exist
-- 0-0, 0, 0, 0-0 and 0-0.
--
-- KEYS  the streams
local told = {}
for _, stream in ipairs(KEYS) do
  local facts = {
    ['last-generated-id'] = '0-0', ['entries-added'] = 0, ['length'] = 0, ['max-deleted-entry-id'] = '0-0',
  }
  if redis.call('EXISTS', stream) == 1 then
    local info = redis.call('XINFO', 'STREAM', stream)
    for i = 1, #info, 2 do
      facts[info[i]] = info[i + 1]
    end
  end
  local oldest = facts['first-entry']
  told[#told + 1] = {
    facts['last-generated-id'], facts['entries-added'], facts['length'], oldest and oldest[1] or '0-0',
    facts['max-deleted-entry-id'],
  }
end
return told
