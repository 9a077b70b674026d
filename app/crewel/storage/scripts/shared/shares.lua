-- For the scripts that keep a bounded number of things, or of bytes, that several accounts cause. They have, as locals: `call`,
-- redis.call; `base`, what all keys begin with.
--
-- The rule: beyond a bound, the account that holds most gives up its oldest first. So an account that holds less than its part
-- of the bound, divided by all accounts, loses nothing to another one.
--
-- The things of a store are entries of a stream with its name. `<store>:held:entries` and `<store>:held:bytes` have how much each
-- account holds, and the stream `<store>:of:<account>` its things under the same ids. All up to `<store>:charged` are charged to an
-- account. A server of 1.0 knows none of these keys: what it adds is charged later, what it removes is noticed when it is looked for.
local function shares_of(store)
  local name = base .. store
  return {stream = name, entries = name .. ':held:entries', bytes = name .. ':held:bytes', of = name .. ':of:',
    charged = name .. ':charged'}
end

-- Writes a stream with one entry a second time: the store sets four kilobytes aside for the first entry of a stream, and nothing
-- when it restores one.
local function compact(key)
  redis.pcall('RESTORE', key, 0, call('DUMP', key), 'REPLACE')
end

-- Counts bytes for an account.
local function weigh(shares, account, bytes)
  if tonumber(call('ZINCRBY', shares.bytes, string.format('%.0f', bytes), account)) <= 0 then
    call('ZREM', shares.bytes, account)
  end
end

-- Lets the account hold a thing, which is newer than all that it holds. Returns false if it is not: no step of a server fails for
-- that.
local function hold(shares, account, place)
  local key = shares.of .. account
  if type(redis.pcall('XADD', key, place, '', '')) == 'table' then  -- an error
    return false
  end
  if tonumber(call('ZINCRBY', shares.entries, 1, account)) == 1 then
    compact(key)
  end
  return true
end

-- Lets the account hold a thing no more; with the last one, it is forgotten. Returns false if it does not hold it.
local function let_go(shares, account, place)
  if call('XDEL', shares.of .. account, place) == 0 then
    return false
  end
  if tonumber(call('ZINCRBY', shares.entries, -1, account)) <= 0 then
    call('DEL', shares.of .. account)
    call('ZREM', shares.entries, account)
    call('ZREM', shares.bytes, account)
  end
  return true
end

-- Whether accounts hold all that there is.
local function are_all_charged(shares)
  local newest = call('XREVRANGE', shares.stream, '+', '-', 'COUNT', 1)[1]
  return not newest or newest[1] == call('GET', shares.charged)
end

-- Charges what is not yet, the oldest first, so many at most: what a server of 1.0 has added, and all that has come since. `charge`
-- gets each entry of the stream.
local function charge_others(shares, most, charge)
  local from = call('GET', shares.charged)
  local entries = call('XRANGE', shares.stream, from and '(' .. from or '-', '+', 'COUNT', most)
  for _, entry in ipairs(entries) do
    charge(entry)
  end
  if #entries > 0 then
    call('SET', shares.charged, entries[#entries][1])
  end
end

-- Removes the oldest thing of the account that holds most, in `entries` or in `bytes`; if several hold as much, of the one that
-- has the oldest of all, if it is one of these. `owner_of` says whose an entry of the stream is, `take_out` removes it. Returns how many things it
-- were, and what `take_out` returned; nil if no account holds anything.
local function give_up_first(shares, measure, owner_of, take_out)
  local account, most = unpack(call('ZREVRANGE', shares[measure], 0, 0, 'WITHSCORES'))
  if not account then
    return nil
  end
  local oldest = call('XRANGE', shares.stream, '-', '+', 'COUNT', 1)[1]
  if oldest and call('ZSCORE', shares[measure], owner_of(oldest)) == most then
    account = owner_of(oldest)
  end
  local first = call('XRANGE', shares.of .. account, '-', '+', 'COUNT', 1)[1]
  local place = first and first[1]
  local entry = place and call('XRANGE', shares.stream, place, place)[1]
  if entry then
    return 1, take_out(entry)
  end
  -- A server of 1.0 has removed it, and its bytes are not known any more.
  local average = (call('ZSCORE', shares.bytes, account) or 0) / math.max(call('XLEN', shares.of .. account), 1)
  if not place or let_go(shares, account, place) then
    weigh(shares, account, -average)
  end
  if not place then
    call('ZREM', shares.entries, account)
    call('ZREM', shares.bytes, account)
  end
  return 0, 0
end
