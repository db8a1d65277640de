-- Slices of one claim each, charged at the caller's time: windows of at most one carried segment, and buckets whose numbers
-- are below 2^53. They are decided without a function or a table; what turns out to need more than that is left to `general`.
-- ARGV: one argument for each key: the claim as `general` takes it, now, the slack; for a window its lifetime, as text.
--
-- The answer is the value before the charge, false if there was none; {0, value} if nothing was charged.
local kind = string.byte(ARGV[1])
if kind == 119 or kind == 98 then
  local number, unpack, pack, get, call = #KEYS, struct.unpack, struct.pack, redis.pcall, redis.call
  local answers
  if number > 1 then answers = {} end
  for nth = 1, number do
    local key, arg = KEYS[nth], ARGV[nth]
    local value = get('GET', key) -- a table if it is no string
    local answer
    if nth > 1 then kind = string.byte(arg) end
    if kind == 119 then
      local index, e, r, cost, limit, p, strict = unpack('>I8I8I2I8I8I2B', arg, 2)
      if not value then
        value = string.sub(arg, 1, 27)
        if p == 1 then value = value .. '\0\0\0\0\0\0\0\0' end
        call('SET', key, value, 'PX', string.sub(arg, 71))
        answer = false
      elseif #value == 27 + 8 * p then
        local tag, at, at_e, at_r, count, old = unpack(p == 0 and '>BI8I8I2I8' or '>BI8I8I2I8I8', value)
        local head, fits = arg
        if at == index then
          if at_e > e or (at_e == e and at_r > r) then e, r, head = at_e, at_r, value end
        elseif at == index - 1 then
          count, old = 0, count
        else
          count, old = 0, 0
        end
        if at > index or tag ~= 119 then -- the meter's time is a segment ahead, or it is no window
        elseif p == 0 then
          fits = count + cost <= limit
        else
          local room = limit - count - cost
          if old == 0 or strict == 1 then
            fits = old <= room
          elseif room < 0 then
            fits = false
          else
            local S = unpack('>I8', arg, 39)
            local left, right = old * ((S - e) * 1000 - r), room * S * 1000
            if left < 9007199254740992 and right < 9007199254740992 then fits = left <= right
            -- Each side is off by at most four roundings of 2^-53, so a difference of 90 of them is a real one.
            elseif math.abs(left - right) > left * 1e-14 then fits = left < right end
          end
        end
        if not fits then
          if fits == false then answer = { 0, value } end
        elseif at == index then
          -- The end of the segment has not changed, and with it the expiry.
          call('SETRANGE', key, '9', string.sub(head, 10, 19) .. pack('>I8', count + cost))
          answer = value
        else
          local new = string.sub(arg, 1, 27)
          if p == 1 then new = new .. pack('>I8', old) end
          call('SET', key, new, 'PX', string.sub(arg, 71))
          answer = value
        end
      end
    else
      local room, add, interval, _, high, low = unpack('>I8I8c8I8I4I4', arg, 3)
      local at_high, at_low, debt, old_high = high, low, 0
      if value and #value == 25 then
        local tag, h, l, tat_high, tat_low, old = unpack('>BI4I4I4I4c8', value)
        old_high = tat_high
        if h > high or (h == high and l > low) then at_high, at_low = h, l end
        -- Exact below 2^53; beyond that it is more than any room in any case.
        debt = (tat_high - at_high) * 4294967296 + tat_low - at_low
        if tag ~= 98 or (debt > 0 and old ~= interval) then debt = nil elseif debt < 0 then debt = 0 end
      elseif value then
        debt = nil
      end
      if debt and debt <= room then
        debt = at_low + debt + add -- below 2^54: see `high`
        local more = math.floor(debt / 4294967296)
        local h, l = at_high + more, debt - more * 4294967296
        local new = pack('>BI4I4I4I4c8', 98, at_high, at_low, h, l, interval)
        if h == old_high then
          call('SETRANGE', key, '0', new)
        else
          -- Until the next whole high part, four seconds at most: as long as that stays the same, so does the expiry.
          local left = ((h + 1 - high) * 4294967296 - low) / 1000000
          call('SET', key, new, 'PX', string.format('%.0f', math.ceil(left) + unpack('>I8', arg, 43)))
        end
        answer = value
      elseif debt then
        answer = { 0, value }
      end
    end
    if answer == nil then
      local now = kind == 119 and 55 or 35
      local header, slack = '\1\1' .. string.sub(arg, now, now + 7), string.sub(arg, now + 8, now + 15)
      answer = general({ key }, { '\0' .. slack, header, arg })[1]
    end
    if number == 1 then return answer end
    answers[nth] = answer
  end
  return answers
end
return general(KEYS, ARGV)
