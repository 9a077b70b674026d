#!lua flags=allow-oom
-- Discards dead letters for good, those in the bin too. Those that have gone already are left out.
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
-- ARGV[4...]  ids in `dead` or in the bin
local node, dead, facts = KEYS[1], KEYS[2], KEYS[3]
local base, facts_max, who = ARGV[1], ARGV[2], ARGV[3]
local call, keeps = redis.call, false

-- include shared/shares.lua

-- include shared/indexes.lua

-- include shared/bin.lua

-- include shared/discarding.lua
