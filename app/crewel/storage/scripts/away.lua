#!lua flags=allow-oom
-- Notes of sessions of this server when they end because their clients have gone, or that their clients have come. Sessions that
-- it does not have are left out. A repeated call changes nothing.
--
-- Returns the number of sessions noted; or 'fenced' if this server has been superseded.
--
-- KEYS[1]  node:<token>, the server that has the sessions
-- ARGV[1]  what all keys begin with; s: is built from it
-- ARGV[2]  token
-- ARGV[3]...  for each: name, and milliseconds since 1970; 0 if its client has come
local base, token = ARGV[1], ARGV[2]
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 'fenced'
end

local noted = 0
for place = 3, #ARGV, 2 do
  local session, ends = base .. 's:' .. ARGV[place], ARGV[place + 1]
  if redis.call('HGET', session, 'owner') == token then
    noted = noted + 1
    if ends == '0' then
      redis.call('HDEL', session, 'away')
    else
      redis.call('HSET', session, 'away', token .. ' 0 ' .. ends)
    end
  end
end
return noted
