#!lua flags=allow-oom
-- Pauses, resumes or stops a job because an operator wants it, whatever server runs it.
--
-- Returns 1 if the job is in the new state from now on, 0 if its state does not allow that, nil if there is no such job.
--
-- KEYS[1]     jobs:open
-- KEYS[2]     job:<id>
-- ARGV[1]     the job's id
-- ARGV[2]     the new state
-- ARGV[3]     the operator
-- ARGV[4]     milliseconds since 1970
-- ARGV[5]...  states that allow it
local open, job = KEYS[1], KEYS[2]
local id, new, who, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call

local state = call('HGET', job, 'state')
if not state then
  return nil
end
for place = 5, #ARGV do
  if ARGV[place] == state then
    call('HSET', job, 'state', new, 'changed', now, 'changedBy', who)
    if new == 'stopped' then
      call('HSET', job, 'ended', now)
      call('SREM', open, id)
    end
    return 1
  end
end
return 0
