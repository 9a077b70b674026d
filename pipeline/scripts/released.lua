#!lua
-- Removes the alerts of sessions that were released, unless their holdbacks began later.
--
-- Returns how many were removed.
--
-- KEYS[1]  alerts, a hash: by session a JSON object, whose `since` is when its holdback began, ms
-- ARGV[1..]  a session and when it was released, ms; then the next ones
local removed = 0
for i = 1, #ARGV, 2 do
  local text = redis.call('HGET', KEYS[1], ARGV[i])
  if text then
    local is_json, alert = pcall(cjson.decode, text)
    local since = is_json and type(alert) == 'table' and tonumber(alert['since']) or 0
    if since <= tonumber(ARGV[i + 1]) then
      removed = removed + redis.call('HDEL', KEYS[1], ARGV[i])
    end
  end
end
return removed
