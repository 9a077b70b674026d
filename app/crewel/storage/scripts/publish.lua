#!lua
-- Appends messages to the log in the order given, with one fact about them; copies them into the histories of their topics
-- and the queues of groups that get them too. All of it is done or nothing.
--
-- Ids are microseconds of the store's clock, and one after another within a call; they rise even when the clock does not.
-- A message whose key is remembered was published before: it is not appended again, and has the id of the first time. One
-- that may not come second is refused if the history has a message, and has no id. One that says the same as the newest of
-- the history, and is not to be delivered then, goes into the history alone. One that was scheduled leaves the list of those in
-- the same step; if it is not there any more, nothing is done.
--
-- Returns {prev, id, ...}: the newest id before this call, then one id a message: negative if it was published before, 0 if
-- it was refused, a text if it lies in the history alone, an empty one if it is not scheduled any more; or 'fenced' if the server
-- has been superseded.
--
-- KEYS[1]     node:<token>, the server that publishes
-- KEYS[2]     last
-- KEYS[3]     log
-- KEYS[4]     facts
-- KEYS[5...]  k:<scope> of each message that has a key, in their order
-- ARGV[1]     what all keys begin with; h:, topic:, q:, qb: and scheduled are built from it
-- ARGV[2]     bound of the facts, entries
-- ARGV[3]     how long a key is remembered, milliseconds
-- ARGV[4]     bytes that one history may have; then its oldest messages go. 0: any number
-- ARGV[5]     now, by the server's clock, microseconds since 1970: what has expired by then is not the newest of a history
-- ARGV[6...]  for each message: '0', '1' if it has a key, '2' if something is asked for its topic, '3' for both, '4' if it was
--             scheduled, '6' if that and something is asked for its topic; number of
--             the fields of the log's entry (s, x, q, o, p) with their values, which follow channel and body; channel; body;
--             the key as its publisher gave it, JSON, if it has one, or the id of the scheduled message; these fields; and if
--             something is asked for: entries
--             that the history may have, 0 if it goes into none; '1' if it is to be delivered in any case, else '0'; '1' if
--             it may not come second, else '0'; when it leaves the history, and when it leaves the queues, microseconds
--             since 1970, 0 for never; its priority; number of the queues; these queues
local node, last, log, facts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local base, facts_max, once_ms, history_bytes, server_now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local call, format = redis.call, string.format

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local prev = tonumber(call('GET', last) or 0)
local now = call('TIME')
local id = math.max(prev, now[1] * 1000000 + now[2] - 1)
local first = id + 1
local answer, channels, addressed = {prev}, {}, {}
local keyed, told_keys, told_scheduled = 4, nil, nil

-- What only those messages need that ask for something, three functions. They are made when the first of them comes: to make
-- them takes a quarter of the time of a small publish.
local function for_topics()
-- include shared/packed.lua
-- include shared/queues.lua
  -- Whether the newest of a history, unless it has expired, has this body.
  local function says_the_same(history, body)
    local newest = call('XREVRANGE', history, '+', '-', 'COUNT', 1)[1]
    local is_same, expires = false, 0
    for at = 1, newest and #newest[2] or 0, 2 do
      local field, value = newest[2][at], newest[2][at + 1]
      if field == 'b' then
        is_same = value == body
      elseif field == 'e' then
        expires = tonumber(value)
      end
    end
    return is_same and (expires == 0 or expires > tonumber(server_now))
  end

  -- Forgets when those entries expire that are about to go, because one more comes. More than a thousand at once are left to
  -- expire.lua, which finds nothing of them then.
  local function forget_oldest(history, channel, length, most)
    if length < most or call('EXISTS', base .. 'expiry') == 0 then
      return
    end
    local members = {}
    for at, entry in ipairs(call('XRANGE', history, '-', '+', 'COUNT', math.min(length - most + 1, 1000))) do
      members[at] = string.match(entry[1], '^%d+') .. ' ' .. channel
    end
    call('ZREM', base .. 'expiry', unpack(members))
  end

  -- Lets the oldest messages go as long as a history has too many bytes. The first field of each entry, z, is the bytes that had
  -- gone into the history before it, so what came since an entry is a difference, whatever has left meanwhile.
  local function shorten(history, channel, added)
    local length, members = call('XLEN', history), {}
    for _, entry in ipairs(call('XRANGE', history, '-', '+', 'COUNT', 64)) do
      if #members == length - 1 or added - entry[2][2] <= history_bytes then
        break
      end
      members[#members + 1] = string.match(entry[1], '^%d+') .. ' ' .. channel
    end
    if #members > 0 then
      if call('EXISTS', base .. 'expiry') == 1 then
        call('ZREM', base .. 'expiry', unpack(members))
      end
      call('XTRIM', history, 'MAXLEN', length - #members)
    end
  end

  -- Copies a message into the history of its topic.
  local function keep(text, entry, most, expires)
    local channel = entry[2]
    local history = base .. 'h:' .. channel
    local length = call('XLEN', history)
    if length == 0 then
      call('SADD', base .. 'topics', channel)
      call('HSETNX', base .. 'topic:' .. channel, 'epoch', text)
    end
    forget_oldest(history, channel, length, tonumber(most))
    if expires ~= '0' then
      entry = {'e', expires, unpack(entry)}
      call('ZADD', base .. 'expiry', format('%.0f', math.ceil(expires / 1000)), text .. ' ' .. channel)
    end
    local size = 0
    for _, part in ipairs(entry) do
      size = size + #part
    end
    local added = call('HINCRBY', base .. 'topic:' .. channel, 'added', size)
    call('XADD', history, 'MAXLEN', most, text .. '-0', 'z', added - size, unpack(entry))
    if history_bytes > 0 and added > history_bytes then
      shorten(history, channel, added)
    end
  end

  -- Puts a message into the queues of groups, and notes the fact.
  local function share(text, entry, priority, expires, from, to)
    local queues = {}
    local message = packed(expires == '0' and entry or {'e', expires, unpack(entry)})
    for at = from, to do
      enqueue(ARGV[at], text, message, priority, expires)
      queues[#queues + 1] = cjson.encode(ARGV[at])
    end
    addressed[#addressed + 1] = format('{"id":%s,"channel":"%s","sessions":[],"queues":[%s]}', text, entry[2],
      table.concat(queues, ','))
  end

  return says_the_same, keep, share
end

local says_the_same, keep, share
local at = 6
while at <= #ARGV do
  local kind, more, channel, body = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  local fields = (kind == '0' or kind == '2') and at + 4 or at + 5
  local asked = fields + more
  local stop = asked
  local remembered, is_refused, is_told, once = false, false, true, nil
  if kind ~= '0' then
    if kind == '4' or kind == '6' then
      once = ARGV[at + 4]
      remembered = call('HEXISTS', base .. 'scheduled:messages', once) == 0 and 'gone'
    elseif kind ~= '2' then
      keyed = keyed + 1
      once = KEYS[keyed]
      remembered = call('GET', once)
    end
    if kind ~= '1' and kind ~= '4' then
      stop = asked + 7 + ARGV[asked + 6]
      if not keep then
        says_the_same, keep, share = for_topics()
      end
      local history = base .. 'h:' .. channel
      is_refused = ARGV[asked + 2] == '1' and call('XLEN', history) > 0
      is_told = ARGV[asked + 1] == '1' or ARGV[asked] == '0' or not says_the_same(history, body)
    end
  end
  if remembered then
    answer[#answer + 1] = remembered == 'gone' and '' or -tonumber(remembered)
  elseif is_refused then
    answer[#answer + 1] = 0
  else
    id = id + 1
    local text = format('%.0f', id)
    if is_told then
      call('XADD', log, text .. '-0', 'c', channel, 'b', body, unpack(ARGV, fields, asked - 1))
      answer[#answer + 1] = id
      channels[#channels + 1] = channel
    else
      answer[#answer + 1] = text
      channels[#channels + 1] = ''
    end
    if once and kind < '4' then
      call('SET', once, text, 'PX', once_ms)
      told_keys = (told_keys and told_keys .. ',' or ',"keys":{') .. '"' .. text .. '":' .. ARGV[at + 4]
    elseif once then
-- include shared/scheduled.lua
      unschedule(once)
      told_scheduled = (told_scheduled and told_scheduled .. ',' or ',"scheduled":{') .. '"' .. text .. '":' .. once
    end
    if stop > asked then
      local entry = {'c', channel, 'b', body, unpack(ARGV, fields, asked - 1)}
      if ARGV[asked] ~= '0' then
        keep(text, entry, ARGV[asked], ARGV[asked + 3])
      end
      if is_told and stop > asked + 7 then
        share(text, entry, ARGV[asked + 5], ARGV[asked + 4], asked + 7, stop - 1)
      end
    end
  end
  at = stop
end

if id >= first then
  call('SET', last, format('%.0f', id))
  -- The grammar of channels knows nothing that JSON would have to escape.
  local fact = format('{"first":%.0f,"channels":["%s"]', first, table.concat(channels, '","'))
  fact = fact .. (told_keys and told_keys .. '}' or '') .. (told_scheduled and told_scheduled .. '}}' or '}')
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'published', 'd', fact)
  for _, each in ipairs(addressed) do
    call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'addressed', 'd', each)
  end
end
return answer
