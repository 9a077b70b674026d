#!lua flags=no-writes
-- Returns the record of a session of this server, as HGETALL gives it; or 'fenced' if another server owns it, or none has it.
--
-- KEYS[1]  s:<session>
-- ARGV[1]  token
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
  return 'fenced'
end
return redis.call('HGETALL', KEYS[1])
