#!lua flags=allow-oom
-- Appends one entry of the audit. Of too many, the operator with the most entries gives up the oldest.
--
-- Returns the entry's id.
--
-- KEYS[1]  audit
-- ARGV[1]  what all keys begin with; audit: is built from it
-- ARGV[2]  entries that are kept
-- ARGV[3]  the operator
-- ARGV[4]  the entry, JSON
local audit, base, most, who = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local call = redis.call

-- include shared/shares.lua

local shares = shares_of('audit')

local function who_of(entry)
  return tostring(cjson.decode(entry[2][2]).who or '')
end

local function take_out(entry)
  let_go(shares, who_of(entry), entry[1])
  return call('XDEL', audit, entry[1])
end

local are_charged = are_all_charged(shares)
local place = call('XADD', audit, '*', 'd', ARGV[4])
if are_charged then
  hold(shares, who, place)
  call('SET', shares.charged, place)
else
  charge_others(shares, 500, function(entry) hold(shares, who_of(entry), entry[1]) end)
end
-- Where the bound has been lowered, the rest of what is too much goes with later calls.
for _ = 1, 1000 do
  if call('XLEN', audit) <= most or not give_up_first(shares, 'entries', who_of, take_out) then
    break
  end
end
return place
