#!lua flags=allow-oom
-- Applies one commit of a server: how far it has taken the log, what is open for its sessions and what no more, and in the
-- same step the dead letters and facts that say why. Applied once, in the order of the numbers, so that a commit whose outcome
-- is unknown can be repeated as it is.
--
-- A dead letter takes its message from the inbox or the log; if it has gone from there, the dead letter says so by being empty.
-- What lay in the inbox and was a subject's is settled for the subject, or open for one of its sessions less.
--
-- Returns {{name, ...}, {id, ...}}: sessions that another server owns, of which nothing was applied, and the ids in
-- `dead` of the dead letters in their order. For a commit that had been applied before, the same sessions and {}: without
-- them, a server whose answer was lost would take batch numbers for reserved. 'fenced' if this server has been
-- superseded; 'behind' if the store has lost a commit of it; 'early' if not all parts are written (open.lua).
--
-- KEYS[1]      node:<token>
-- KEYS[2]      log
-- KEYS[3]      dead
-- KEYS[4]      facts
-- ARGV[1]      what all keys begin with; s:, inbox:, ptp: and dead: are built from it
-- ARGV[2]      token
-- ARGV[3]      number of the commit, from 1
-- ARGV[4]      parts that were written ahead
-- ARGV[5]      cursor, log id
-- ARGV[6]      low, log id
-- ARGV[7]      bound of the facts, entries
-- ARGV[8]      bound of the dead letters, entries
-- ARGV[9]      bound of the dead letters, bytes; 0: none
-- ARGV[10]     number of the arguments that follow of messages that were taken and settled since the commit before
-- ARGV[11...]  these: ids, a JSON list; how many sessions have settled just these; the names of these sessions; and so on
-- ARGV[...]    for each session of which there is more to tell: name; number up to which its batch numbers are reserved,
--              or 0; seven numbers of arguments, and then these arguments:
--              fields to set in s:<session>, each with its value; fields `o:<id>` of what is settled; further fields to
--              delete; ids to delete in the inbox; fields of intervals to forget; facts about ends, JSON objects;
--              dead letters, eleven arguments each: id, code, reason, attempts, and of a message that was never stored the
--              channel, body, sender, qos and when it was received, which are empty otherwise; the code as the receiver gave
--              it, if another one counts; its earlier attempts, JSON, or empty; a body that an argument before has already is `@` and the number of that argument
local node, log, dead, facts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local base, token, number, parts = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local cursor, low, facts_max, letters_max, letters_bytes = ARGV[5], ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])
local portion = 5000
local call = redis.call

-- Calls a command for ARGV[from] to ARGV[to], in portions because unpack has a limit near 8,000. Returns how many fields it
-- has added or removed.
local function all(command, key, from, to)
  local count = 0
  for start = from, to, portion do
    count = count + call(command, key, unpack(ARGV, start, math.min(start + portion - 1, to)))
  end
  return count
end

-- include shared/packed.lua

-- include shared/shares.lua

-- include shared/indexes.lua

-- include shared/bin.lua

-- include shared/letters.lua

-- include shared/waiting.lua

-- include shared/receivers.lua

-- The ids that facts tell as settled, as keys of a table.
local function settled_of(from, to)
  local settled = {}
  for at = from, to - 1 do
    local fact = cjson.decode(ARGV[at])
    for _, id in ipairs(fact.reason == 'settled' and fact.ids or {}) do
      settled[string.format('%.0f', id)] = true
    end
  end
  return settled
end

-- Notes what becomes of the subjects' messages among those that leave an inbox.
local function finish(name, session, from, to, facts_at, letters_at)
  local settled
  for at = from, to do
    local _, _, source = origin_of(call('HGET', session, 'i:' .. ARGV[at]) or '')
    if is_common(source) then
      settled = settled or settled_of(facts_at, letters_at)
      finish_for(name, ARGV[at], source, settled[ARGV[at]])
    end
  end
end

-- Removes what is settled. What is not open in the log was spilled while it was being settled: it lies in the inbox.
local function settle(session, inbox, from, to)
  if all('HDEL', session, from, to) == to - from + 1 then
    return
  end
  for at = from, to do
    local id = string.sub(ARGV[at], 3)
    if call('HDEL', inbox, id) == 1 then
      call('HDEL', session, 'i:' .. id)
    end
  end
end

-- Reserves batch numbers. A login may have reserved more meanwhile.
local function reserve(session, batch)
  if tonumber(batch) > tonumber(call('HGET', session, 'batch') or 0) then
    call('HSET', session, 'batch', batch)
  end
end

-- Forgets intervals that the cursor has passed. Another one may have begun at the same place: it stays.
local function forget(session, from, to)
  for at = from, to do
    local till = call('HGET', session, ARGV[at])
    if till and tonumber(till) <= tonumber(cursor) then
      call('HDEL', session, ARGV[at])
    end
  end
end

local seq, opening, opened, tag, passed_over = unpack(call('HMGET', node, 'seq', 'opening', 'opened', 'tag', 'fenced'))
if not seq then
  return 'fenced'
elseif tonumber(seq) == number then
  local last = passed_over and cjson.decode(passed_over)
  return {last and last.seq == number and last.sessions or {}, {}}
elseif tonumber(seq) ~= number - 1 then
  return 'behind'
elseif parts > 0 and (tonumber(opening) ~= number or tonumber(opened) ~= parts) then
  return 'early'
end

local fenced, ended, letters = {}, {}, {}

-- Notes for sessions of this server that they have settled these ids. Those of a node, which has a tag, are not asked for
-- their owner: no session of a node is another one's while it has its record, which inherit.lua renames before it moves the
-- first. adopt.lua moves sessions in slices, removes the record after the last one, and the tag before the first.
local function note_settled(ids, from, to)
  -- The grammar of names knows nothing that JSON would have to escape.
  local first, rest = '{"session":"', '","reason":"settled","ids":' .. ids .. '}'
  if tag then
    ended[#ended + 1] = first .. table.concat(ARGV, rest .. ',' .. first, from, to) .. rest
    return
  end
  for at = from, to do
    local name = ARGV[at]
    if call('HGET', base .. 's:' .. name, 'owner') == token then
      ended[#ended + 1] = first .. name .. rest
    else
      fenced[#fenced + 1] = name
    end
  end
end

local at, rest = 11, 11 + ARGV[10]
while at < rest do
  local last = at + 1 + ARGV[at + 1]
  note_settled(ARGV[at], at + 2, last)
  at = last + 1
end

while at <= #ARGV do
  local name = ARGV[at]
  local session, inbox = base .. 's:' .. name, base .. 'inbox:' .. name
  local set = at + 9
  local settled = set + ARGV[at + 2]
  local delete = settled + ARGV[at + 3]
  local unbox = delete + ARGV[at + 4]
  local passed = unbox + ARGV[at + 5]
  local facts_at = passed + ARGV[at + 6]
  local letters_at = facts_at + ARGV[at + 7]
  local stop = letters_at + ARGV[at + 8]
  if call('HGET', session, 'owner') == token then
    for letter = letters_at, stop - 1, 11 do
      local id, code, reason, attempts, channel, body, sender, qos, received, given, tries = unpack(ARGV, letter, letter + 10)
      local same = string.match(body, '^@(%d+)$')
      body = same and ARGV[tonumber(same)] or body
      letters[#letters + 1] =
        dead_letter(name, inbox, id, code, reason, attempts, channel, body, sender, qos, received, given, tries)
    end
    finish(name, session, unbox, passed - 1, facts_at, letters_at)
    all('HSET', session, set, settled - 1)
    settle(session, inbox, settled, delete - 1)
    all('HDEL', session, delete, unbox - 1)
    all('HDEL', inbox, unbox, passed - 1)
    forget(session, passed, facts_at - 1)
    if ARGV[at + 1] ~= '0' then
      reserve(session, ARGV[at + 1])
    end
    for fact = facts_at, letters_at - 1 do
      ended[#ended + 1] = ARGV[fact]
    end
  else
    fenced[#fenced + 1] = name
  end
  at = stop
end

keep_bound(#letters)
call('HSET', node, 'cursor', cursor, 'low', low, 'seq', ARGV[3])
if #fenced > 0 then
  call('HSET', node, 'fenced', cjson.encode({seq = number, sessions = fenced}))
end
if #ended > 0 then
  local fact = '{"ended":[' .. table.concat(ended, ',') .. ']}'
  call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'ended', 'd', fact)
end
return {fenced, letters}
