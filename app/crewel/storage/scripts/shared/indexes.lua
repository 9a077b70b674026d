-- For the scripts that store dead letters or take them out, after shared/shares.lua. They have, as further local: `dead`, the
-- key.
--
-- Each value that dead letters can be asked for by has a stream, in which its dead letters have the ids that they have in
-- `dead`; and the values that there are lie in a sorted set, so that all with the same beginning can be found.
--
-- A body or QoS of some length lies once in the hash `dead:texts`, however many dead letters have it: the dead letter has its
-- name, `bh` or `qh`, and `dead:uses` counts the dead letters. `dead:bytes` adds up what dead letters and texts take, about; a
-- dead letter says its part in `z`.
--
-- A dead letter is held by the account of its receiver: the subject of a session, or the group whose queue it is. A text counts
-- once for each account.
local indexed = {'code', 'receiver', 'channel'}
local shared_from = 200  -- bytes; to refer to a shorter text costs as much as the text
local text_cost = 150  -- bytes, in addition to the text
local names = {}  -- of texts that this call has shared
local shares = shares_of('dead')

local function add_bytes(bytes)
  if bytes ~= 0 then
    call('INCRBY', base .. 'dead:bytes', string.format('%.0f', bytes))
  end
end

-- Lets one more dead letter refer to a text. Returns the name of the text: its SHA-1, made longer if another text has that.
local function share(text)
  local name = names[text]
  if not name then
    name = redis.sha1hex(text)
    local known = call('HGET', base .. 'dead:texts', name)
    while known and known ~= text do
      name = name .. '+'
      known = call('HGET', base .. 'dead:texts', name)
    end
    if not known then
      call('HSET', base .. 'dead:texts', name, text)
      add_bytes(#text + text_cost)
    end
    names[text] = name
  end
  call('HINCRBY', base .. 'dead:uses', name, 1)
  return name
end

-- Lets one dead letter less refer to the text of this name, if it has one. Returns the bytes that this frees.
local function unshare(name)
  if not name or call('HINCRBY', base .. 'dead:uses', name, -1) > 0 then
    return 0
  end
  local freed = call('HSTRLEN', base .. 'dead:texts', name) + text_cost
  call('HDEL', base .. 'dead:texts', name)
  call('HDEL', base .. 'dead:uses', name)
  return freed
end

-- Gives a dead letter the texts that it refers to.
local function complete(letter)
  letter.body = letter.body or letter.bh and call('HGET', base .. 'dead:texts', letter.bh) or ''
  letter.qos = letter.qos or letter.qh and call('HGET', base .. 'dead:texts', letter.qh) or ''
end

-- The fields of an entry of a stream, as a table; nil if there is no entry.
local function fields_of(entry)
  if not entry then
    return nil
  end
  local fields = {}
  for at = 1, #entry[2], 2 do
    fields[entry[2][at]] = entry[2][at + 1]
  end
  return fields
end

local function account_of(letter)
  local receiver = letter.receiver or ''
  return string.match(receiver, '^client/[^/]+') or receiver
end

-- Lets an account have one dead letter more (1) or less (-1) that refers to these texts. Returns the bytes of those that are new
-- to it, or that it has no more.
local function refer(account, letter, difference)
  local bytes = 0
  for _, field in ipairs({'bh', 'qh'}) do
    local name = letter[field]
    local uses = name and call('HINCRBY', base .. 'dead:held:texts', account .. ' ' .. name, difference)
    if uses == 0 then
      call('HDEL', base .. 'dead:held:texts', account .. ' ' .. name)
    end
    if uses and uses == math.max(difference, 0) then
      bytes = bytes + call('HSTRLEN', base .. 'dead:texts', name) + text_cost
    end
  end
  return bytes
end

-- Charges a dead letter to the account of its receiver. All older ones are charged already.
local function charge(place, letter)
  local account = account_of(letter)
  if hold(shares, account, place) then
    weigh(shares, account, (letter.z or 0) + refer(account, letter, 1))
  end
end

-- Enters a dead letter into the indexes.
local function enlist(place, letter)
  for _, field in ipairs(indexed) do
    local value = letter[field]
    if value ~= '' then
      local key = base .. 'dead:' .. field .. ':' .. value
      call('XADD', key, place, '', '')
      if call('ZADD', base .. 'dead:' .. field .. 's', 0, value) == 1 then
        compact(key)
      end
    end
  end
end

-- Takes a dead letter out of `dead` and out of the indexes.
local function unlist(place, letter)
  call('XDEL', dead, place)
  for _, field in ipairs(indexed) do
    local value = letter[field] or ''
    local key = base .. 'dead:' .. field .. ':' .. value
    if call('XDEL', key, place) == 1 and call('XLEN', key) == 0 then
      call('DEL', key)
      call('ZREM', base .. 'dead:' .. field .. 's', value)
    end
  end
  local account = account_of(letter)
  if let_go(shares, account, place) then
    weigh(shares, account, -(letter.z or 0) - refer(account, letter, -1))
  end
end

-- Lets go of the texts of a dead letter that is no more. Returns the bytes that this frees.
local function free(letter)
  local freed = (letter.z or 0) + unshare(letter.bh) + unshare(letter.qh)
  add_bytes(-freed)
  return freed
end

-- Takes a dead letter out, and out of the indexes. Returns the bytes that this frees.
local function take_out(place, letter)
  unlist(place, letter)
  return free(letter)
end
