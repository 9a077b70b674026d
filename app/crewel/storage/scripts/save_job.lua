#!lua flags=allow-oom
-- Notes how far a job is, by the server that runs it, and that it has ended, unless an operator has stopped it meanwhile.
--
-- Returns its state from now on; or 'fenced' if another server runs it.
--
-- KEYS[1]     jobs:open
-- KEYS[2]     job:<id>
-- ARGV[1]     token of the server
-- ARGV[2]     the job's id
-- ARGV[3]     the state that ends it: done or failed; empty while it lasts
-- ARGV[4]     milliseconds since 1970
-- ARGV[5]     how many more are done than the steps of the work have counted
-- ARGV[6]...  fields and their values
local open, job = KEYS[1], KEYS[2]
local token, id, ended, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call

if call('HGET', job, 'owner') ~= token then
  return 'fenced'
end
call('HSET', job, unpack(ARGV, 6))
if ARGV[5] ~= '0' then
  call('HINCRBY', job, 'done', ARGV[5])
end
local state = call('HGET', job, 'state')
if state == 'running' and ended ~= '' then
  state = ended
  call('HSET', job, 'state', state, 'changed', now, 'ended', now)
  call('SREM', open, id)
end
return state
