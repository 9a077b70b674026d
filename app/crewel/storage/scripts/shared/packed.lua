-- A message as one text, for an inbox: of each field its name, the length of its value, a colon, and the value.
local function packed(fields)
  local parts = {}
  for at = 1, #fields, 2 do
    local value = fields[at + 1]
    parts[#parts + 1] = fields[at] .. #value .. ':' .. value
  end
  return table.concat(parts)
end
