-- For the scripts that read or write what a session's record says of a message that waits for it. They have, as a local,
-- `base`, what all keys begin with. Such a text is
-- `<attempts>:<bytes>:<channel>:<priority>:<expires>:<source>`, less the defaults at its end.
local usual_priority = '5'

-- The text of a message that waits.
local function waiting_text(attempts, size, channel, priority, expires, source)
  local text = attempts .. ':' .. size .. ':' .. channel
  if source ~= '' then
    return text .. ':' .. priority .. ':' .. expires .. ':' .. source
  elseif expires ~= '0' then
    return text .. ':' .. priority .. ':' .. expires
  elseif priority ~= usual_priority then
    return text .. ':' .. priority
  end
  return text
end

-- Priority, expiry and source of such a text. The source is empty, or the shared queue that the message came from.
local function origin_of(text)
  local priority, expires, source = string.match(text, '^%d+:%d+:[^:]*:(%d+):?(%d*):?(.*)$')
  if not priority then
    return usual_priority, '0', ''
  end
  return priority, expires ~= '' and expires or '0', source
end

-- Whether the messages of a shared queue are a subject's, of which several sessions may have one. Those of all other queues are
-- one session's at a time.
local function is_common(queue)
  return string.sub(queue, 1, 7) == 'client/'
end
