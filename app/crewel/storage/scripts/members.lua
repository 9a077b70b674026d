#!lua flags=no-writes
-- Tells which nodes there are, all at one instant. Changes nothing.
--
-- Returns {tags, node, ...}: all tags, each followed by the token of the node that has its sessions; for each node its token,
-- name, tag, link, process as JSON, the milliseconds that its lease lasts (negative: it has ended), microseconds of its start,
-- number of its sessions, and its heir's token if it is dead. What is unknown is empty.
--
-- KEYS[1]  nodes
-- KEYS[2]  tags
-- ARGV[1]  what all keys begin with; node:, left:, lease: and own: are built from it
local nodes, tags = KEYS[1], KEYS[2]
local base = ARGV[1]
local call = redis.call
local found = {call('HGETALL', tags)}
for _, token in ipairs(call('SMEMBERS', nodes)) do
  local record = base .. 'node:' .. token
  if call('EXISTS', record) == 0 then
    record = base .. 'left:' .. token
  end
  local fields = call('HMGET', record, 'name', 'tag', 'link', 'process', 'since', 'heir')
  for place = 1, 6 do
    fields[place] = fields[place] or ''
  end
  local name, tag, link, process, since, heir = unpack(fields)
  local lasts = call('PTTL', base .. 'lease:' .. token)
  found[#found + 1] = {token, name, tag, link, process, lasts, since, call('SCARD', base .. 'own:' .. token), heir}
end
return found
