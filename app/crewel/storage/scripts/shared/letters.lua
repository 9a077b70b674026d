-- For the scripts that store dead letters, after shared/packed.lua, shared/indexes.lua and shared/bin.lua. They have, as further locals: `log`,
-- the key; `letters_max` and `letters_bytes`, the bounds of the dead letters; the second is 0 for none.
local letter_cost = 200  -- bytes, in addition to its texts
local logged = {}  -- messages of the log that this call has read
local are_charged  -- whether accounts hold all that were there before this call
local newest_place

-- The message of a dead letter: a table of the log's fields, empty if it has gone.
local function message(inbox, id)
  local text = call('HGET', inbox, id)
  if text then
    return unpacked(text)
  end
  logged[id] = logged[id] or fields_of(call('XRANGE', log, id .. '-0', id .. '-0')[1]) or {}
  return logged[id]
end

-- The attempts of two JSON lists, either of which may be empty.
local function joined(earlier, later)
  if earlier == '' or later == '' then
    return earlier .. later
  end
  return string.sub(earlier, 1, -2) .. ',' .. string.sub(later, 2)
end

-- Stores a dead letter. An empty channel says that the message was stored. `given` is the code as the receiver gave it, if
-- another one counts; `tries` the earlier attempts, a JSON list, or empty. Returns the dead letter's place in `dead`.
local function dead_letter(name, inbox, id, code, reason, attempts, channel, body, sender, qos, received, given, tries)
  local more = {}
  if channel == '' then
    local known = message(inbox, id)
    channel, body, sender, qos, received = known.c or '', known.b or '', known.s or '', known.q or '', id .. '000'
    more = {'p', '1'}
    tries = joined(known.h or '', tries or '')
    for _, field in ipairs({'r', 'n', 'x', 't', 'e'}) do
      if known[field] and (field ~= 'e' or known.e == '1') then  -- any other `e` is when it would have expired
        more[#more + 1] = field
        more[#more + 1] = known[field]
      end
    end
    if known.r then
      call('INCR', base .. 'dead:returned')
    end
  end
  local body_field, qos_field = 'body', 'qos'
  if #body >= shared_from then
    body_field, body = 'bh', share(body)
  end
  if #qos >= shared_from then
    qos_field, qos = 'qh', share(qos)
  end
  if given and given ~= '' then
    more[#more + 1] = 'g'
    more[#more + 1] = given
  end
  if tries and tries ~= '' then
    more[#more + 1] = 'h'
    more[#more + 1] = tries
  end
  local size = letter_cost + #name + #code + #reason + #channel + #body + #sender + #qos + #(given or '') + #(tries or '')
  add_bytes(size)
  if are_charged == nil then
    are_charged = are_all_charged(shares)
  end
  local place = call('XADD', dead, '*', 'id', id, 'received', received, 'receiver', name, 'code', code, 'reason', reason,
    'attempts', attempts, 'channel', channel, body_field, body, 'sender', sender, qos_field, qos, 'z', size, unpack(more))
  local letter = {code = code, receiver = name, channel = channel, z = size, [body_field] = body, [qos_field] = qos}
  enlist(place, letter)
  if are_charged then
    charge(place, letter)
  end
  newest_place = place
  return place
end

local function owner_of(entry)
  return account_of(fields_of(entry))
end

local function take_out_entry(entry)
  return take_out(entry[1], fields_of(entry))
end

-- Removes dead letters beyond the bounds, those of the account that holds most, and counts them. The bin takes no room that
-- others need: what it has goes first, and does not count as dropped. Where a bound has been lowered, the rest of what is too
-- much goes with later calls.
local function keep_bound(added)
  if added == 0 then
    return
  end
  if are_charged then
    call('SET', shares.charged, newest_place)
  else
    charge_others(shares, 500 + added, function(entry) charge(entry[1], fields_of(entry)) end)
  end
  local most = added + 1000
  local binned = call('HLEN', bin)
  local count = call('XLEN', dead) + binned - letters_max
  local bytes = letters_bytes > 0 and (call('GET', base .. 'dead:bytes') or 0) - letters_bytes or 0
  local removed = 0
  while binned > 0 and removed < most and (count > 0 or bytes > 0) do
    local _, freed = remove_from_bin(call('ZRANGE', binned_at, 0, 0)[1])
    bytes = bytes - freed
    count, binned, removed = count - 1, binned - 1, removed + 1
  end
  local dropped = 0
  while removed < most and (count > 0 or bytes > 0) do
    local gone, freed = give_up_first(shares, bytes > 0 and 'bytes' or 'entries', owner_of, take_out_entry)
    if not gone then
      break
    end
    bytes, count = bytes - freed, count - gone
    dropped, removed = dropped + gone, removed + 1
  end
  if dropped > 0 then
    call('INCRBY', base .. 'dead:dropped', dropped)
  end
end
