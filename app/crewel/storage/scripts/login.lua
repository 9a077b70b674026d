#!lua
-- Makes a session, or gives one that this server owns a new login and a new block of batch numbers. A name that ends with
-- a slash gets a number from the store.
--
-- Returns {name, '1' if it is new else '0', number after which its batches begin, last}; or 'fenced' if another server
-- owns the session or this one has been superseded, 'ending' if the session's end has begun, 'too many' if the subject
-- has its sessions already, 'taken' if a node has a session of the name that is not stored.
--
-- KEYS[1]  node:<token>, the server that has the session
-- KEYS[2]  own:<token>
-- KEYS[3]  last
-- KEYS[4]  names
-- KEYS[5]  facts
-- KEYS[6]  subject:<subject>; none for sessions that are not counted
-- ARGV[1]  what all keys begin with; s:, nodes, node: and unstored: are built from it
-- ARGV[2]  token
-- ARGV[3]  name, or what it begins with
-- ARGV[4]  what the login fixes, JSON
-- ARGV[5]  sessions that the subject may have; negative: any number
-- ARGV[6]  bound of the facts, entries
-- ARGV[7]  size of a block of batch numbers
local node, own, last, names, facts, subject = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local base, token, name, login = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local max_sessions, facts_max, block = tonumber(ARGV[5]), ARGV[6], ARGV[7]
local call = redis.call

-- include shared/unstored.lua

if call('EXISTS', node) == 0 then
  return 'fenced'
end

local key = base .. 's:' .. name
local is_numbered = string.sub(name, -1) == '/'
local owner, batch, ending = false, false, false
if not is_numbered then
  owner, batch, ending = unpack(call('HMGET', key, 'owner', 'batch', 'ending'))
end
local newest = tonumber(call('GET', last) or 0)

if owner then
  if owner ~= token then
    return 'fenced'
  elseif ending then
    return 'ending'
  end
  call('HSET', key, 'r', login, 'batch', string.format('%.0f', batch + block))
  call('HDEL', key, 'away')
  return {name, '0', tonumber(batch), newest}
end

if not is_numbered and is_unstored(name) then
  return 'taken'
elseif subject and max_sessions >= 0 then
  if count_sessions(subject, string.match(name, '^.*/')) >= max_sessions then
    return 'too many'
  end
end
if is_numbered then
  name = name .. string.format('-%.0f', call('INCR', names))
  key = base .. 's:' .. name
end
call('HSET', key, 'owner', token, 'r', login, 'batch', block)
call('SADD', own, name)
if subject then
  call('SADD', subject, name)
end
local fact = '{"session":' .. cjson.encode(name) .. '}'
call('XADD', facts, 'MAXLEN', '~', facts_max, '*', 't', 'opened-session', 'd', fact)
return {name, '1', 0, newest}
