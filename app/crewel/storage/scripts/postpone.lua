#!lua
-- Has a scheduled message that could not be published tried again later, and keeps the reason.
--
-- Returns 1, or 0 if it is not there; or 'fenced' if the server has been superseded.
--
-- KEYS[1]  node:<token>, the server that asks
-- KEYS[2]  scheduled
-- KEYS[3]  scheduled:refused
-- ARGV[1]  its id
-- ARGV[2]  when to try again, milliseconds since 1970
-- ARGV[3]  the reason
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 'fenced'
elseif not redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
return 1
