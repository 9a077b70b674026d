-- A message as one text, for an inbox or a shared queue: of each field its name, the length of its value, a colon, and the
-- value.
local function packed(fields)
  local parts = {}
  for at = 1, #fields, 2 do
    local value = fields[at + 1]
    parts[#parts + 1] = fields[at] .. #value .. ':' .. value
  end
  return table.concat(parts)
end

-- The fields of such a text, as a table.
local function unpacked(text)
  local fields, at = {}, 1
  while at <= #text do
    local field, size, start = string.match(text, '^(.)(%d+):()', at)
    at = start + size
    fields[field] = string.sub(text, start, at - 1)
  end
  return fields
end
