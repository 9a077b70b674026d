#!lua
-- Does the commands of one batch of a job, unless they have been done: a batch that is repeated after a crash changes nothing.
--
-- Returns 1 if they were done now, 0 if this batch or a later one of the job had been done before.
--
-- KEYS[1]  ledger, a hash: number of the newest batch that was done, by job
-- KEYS[2..]  the keys that the commands change
-- ARGV[1]  the job
-- ARGV[2]  number of the batch
-- ARGV[3..]  the commands: how many words one has, then these
local done = redis.call('HGET', KEYS[1], ARGV[1])
if done and tonumber(done) >= tonumber(ARGV[2]) then
  return 0
end
local at = 3
while at <= #ARGV do
  local words = {}
  for i = 1, tonumber(ARGV[at]) do
    words[i] = ARGV[at + i]
  end
  redis.call(unpack(words))
  at = at + 1 + #words
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
