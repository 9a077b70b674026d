#!lua flags=allow-oom
-- Replaces what is known of what accounts have in the store. May be repeated.
--
-- Returns how often that was counted.
--
-- KEYS[1]     stored:held:bytes
-- KEYS[2]     stored:held:entries
-- KEYS[3]     stored:charged
-- ARGV[1...]  for each account: its name, bytes, messages
redis.call('DEL', KEYS[1], KEYS[2])
for at = 1, #ARGV, 3 do
  redis.call('ZADD', KEYS[1], ARGV[at + 1], ARGV[at])
  redis.call('ZADD', KEYS[2], ARGV[at + 2], ARGV[at])
end
return redis.call('INCR', KEYS[3])
