#!lua
-- Enters a job of an operator, which this server runs. Of more than may be kept, the oldest leave that have ended.
--
-- Returns 'begun'; 'too many jobs' if as many are open as may be; or 'fenced' if the server has been superseded. A repeated call
-- changes nothing.
--
-- KEYS[1]     node:<token>, the server that asks
-- KEYS[2]     jobs
-- KEYS[3]     jobs:open
-- KEYS[4]     job:<id>
-- ARGV[1]     what all keys begin with; job: is built from it
-- ARGV[2]     the job's id
-- ARGV[3]     milliseconds since 1970 of its beginning
-- ARGV[4]     jobs that are kept
-- ARGV[5]     jobs that may be open
-- ARGV[6]...  its fields and their values
local node, jobs, open, job = unpack(KEYS)
local base, id, began, most, most_open = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local call = redis.call

if call('EXISTS', node) == 0 then
  return 'fenced'
elseif call('EXISTS', job) == 1 then
  return 'begun'
elseif call('SCARD', open) >= most_open then
  return 'too many jobs'
end
call('HSET', job, unpack(ARGV, 6))
call('ZADD', jobs, began, id)
call('SADD', open, id)
local beyond = call('ZCARD', jobs) - most
if beyond > 0 then
  for _, old in ipairs(call('ZRANGE', jobs, 0, beyond + most_open)) do
    if beyond > 0 and call('SISMEMBER', open, old) == 0 then
      call('ZREM', jobs, old)
      call('DEL', base .. 'job:' .. old)
      beyond = beyond - 1
    end
  end
end
return 'begun'
