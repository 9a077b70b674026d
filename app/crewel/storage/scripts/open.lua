#!lua flags=allow-oom
-- Writes a part of what a large commit opens, ahead of the commit itself, so that no single step holds up the store. That
-- is harmless: what is open beyond a cursor is taken back when the session is adopted. The commit is refused until all its
-- parts are written, and a part that is written again changes nothing.
--
-- Returns {name, ...}: sessions that another server owns, of which nothing was written; 'fenced' if this server has been
-- superseded; 'behind' if the store has lost a commit of it; 'early' if the part before is missing.
--
-- KEYS[1]     node:<token>
-- ARGV[1]     what all keys begin with; s: is built from it
-- ARGV[2]     token
-- ARGV[3]     number of the commit
-- ARGV[4]     number of the part, from 1
-- ARGV[5...]  for each session: name; number of the arguments that follow for it; fields `o:<id>`, each with its value
local node = KEYS[1]
local base, token, number, part = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local portion = 5000  -- arguments; unpack has a limit near 8,000
local call = redis.call

local seq, opening, opened = unpack(call('HMGET', node, 'seq', 'opening', 'opened'))
local written = tonumber(opening) == number and tonumber(opened) or 0
if not seq then
  return 'fenced'
elseif written >= part then
  return {}
elseif tonumber(seq) ~= number - 1 then
  return 'behind'
elseif written ~= part - 1 then
  return 'early'
end

local fenced = {}
local at = 5
while at <= #ARGV do
  local name, count = ARGV[at], tonumber(ARGV[at + 1])
  local session = base .. 's:' .. name
  local stop = at + 1 + count
  if call('HGET', session, 'owner') == token then
    for start = at + 2, stop, portion do
      call('HSET', session, unpack(ARGV, start, math.min(start + portion - 1, stop)))
    end
  else
    fenced[#fenced + 1] = name
  end
  at = stop + 1
end
call('HSET', node, 'opening', ARGV[3], 'opened', ARGV[4])
return fenced
