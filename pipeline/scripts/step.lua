#!lua flags=no-writes
-- Walks over the entries of a stream without telling what is in them: the store cannot count between two ids otherwise.
--
-- Returns how many entries it has passed, and the id of the last of them, or an empty text if there was none. Fewer than were
-- asked for mean that there are no more.
--
-- KEYS[1]  the stream
-- ARGV[1]  id after which to begin
-- ARGV[2]  id of the last entry to pass
-- ARGV[3]  most entries to pass
local entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
local last = entries[#entries]
return { #entries, last and last[1] or '' }
