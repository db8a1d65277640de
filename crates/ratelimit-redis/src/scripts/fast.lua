-- Slices of one claim each, charged at the caller's time: windows of at most one carried segment, and buckets whose numbers
-- are below 2^53. One by itself is decided without a function or a table, several without a function; what turns out to need
-- more than that is left to `general`.
-- ARGV: the header that `general` takes, with a two instead of the server's flag, then a record for each key.
--
-- One claim is answered with the value before the charge, false if there was none; with {0, value} if nothing was charged.
-- Several are answered with one string: of each that value, 'n' if there was none, 'r' and the value if nothing was charged;
-- 'g' for what `general` has answered. If there is such, an array: that string, then those answers.
local ask, byte = ARGV[1], string.byte
if byte(ask) == 2 then
  local spread, unpack, pack, get, call = unpack, struct.unpack, struct.pack, redis.pcall, redis.call
  local keys, number, place = KEYS, #KEYS, 10
  local values, seen, answers, long, length
  if number > 1 then values, seen, answers, long, length = call('MGET', spread(keys)), {}, {}, {}, 0 end
  for nth = 1, number do
    local key, value = keys[nth]
    if values and not seen[key] then
      seen[key] = true -- who comes again sees what was charged
      value = values[nth]
    end
    value = value or get('GET', key) -- a table if it is no string
    local shape, fits, answer = byte(ask, place)
    if shape ~= 98 then
      -- 'f'ixed, 's'liding, s't'rict.
      local index, e, r, cost, limit, S, life = unpack('>I8I8I2I8I8I8I8', ask, place + 1)
      if not value then
        fits = true
        local new = pack(shape == 102 and '>BI8I8I2I8' or '>BI8I8I2I8I8', 119, index, e, r, cost, 0)
        call('SET', key, new, 'PX', string.format('%.0f', life))
      elseif #value == (shape == 102 and 27 or 35) then
        local tag, at, at_e, at_r, count, old = unpack(shape == 102 and '>BI8I8I2I8' or '>BI8I8I2I8I8', value)
        if at == index then
          if at_e > e or (at_e == e and at_r > r) then e, r = at_e, at_r end
        elseif at == index - 1 then
          count, old = 0, count
        else
          count, old = 0, 0
        end
        if at > index or tag ~= 119 then -- the meter's time is a segment ahead, or it is no window
        elseif shape == 102 then
          fits = count + cost <= limit
        else
          local room = limit - count - cost
          if old == 0 or shape == 116 then
            fits = old <= room
          elseif room < 0 then
            fits = false
          else
            local left, right = old * ((S - e) * 1000 - r), room * S * 1000
            if left < 9007199254740992 and right < 9007199254740992 then fits = left <= right
            -- Each side is off by at most four roundings of 2^-53, so a difference of 90 of them is a real one.
            elseif math.abs(left - right) > left * 1e-14 then fits = left < right end
          end
        end
        if not fits then -- nothing is written
        elseif at == index then
          -- The end of the segment has not changed, and with it the expiry.
          call('SETRANGE', key, '9', pack('>I8I2I8', e, r, count + cost))
        else
          local new = pack(shape == 102 and '>BI8I8I2I8' or '>BI8I8I2I8I8', 119, index, e, r, cost, old)
          call('SET', key, new, 'PX', string.format('%.0f', life))
        end
      end
      if fits == nil then
        local shapes = shape == 102 and '\0\0\0' or shape == 115 and '\0\1\0' or '\0\1\1'
        answer = 'w' .. string.sub(ask, place + 1, place + 34) .. shapes .. string.sub(ask, place + 35, place + 42)
        answer = general({ key }, { '\0' .. string.sub(ask, 2, 9), '\1\1\0\0\0\0\0\0\0\0', answer .. '\0\0\0\0\0\0\0\0' })[1]
      end
      place = place + 51
    else
      local room, add, interval, _, high, low = unpack('>I8I8c8I8I4I4', ask, place + 1)
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
      if debt then fits = debt <= room end
      if fits then
        debt = at_low + debt + add -- below 2^54: see `high`
        local more = math.floor(debt / 4294967296)
        local h, l = at_high + more, debt - more * 4294967296
        local new = pack('>BI4I4I4I4c8', 98, at_high, at_low, h, l, interval)
        if h == old_high then
          call('SETRANGE', key, '0', new)
        else
          -- Until the next whole high part, four seconds at most: as long as that stays the same, so does the expiry.
          local left = ((h + 1 - high) * 4294967296 - low) / 1000000
          call('SET', key, new, 'PX', string.format('%.0f', math.ceil(left) + unpack('>I8', ask, 2)))
        end
      elseif fits == nil then
        local header = '\1\1' .. string.sub(ask, place + 33, place + 40)
        answer = 'b\1' .. string.sub(ask, place + 1, place + 32)
        answer = general({ key }, { '\0' .. string.sub(ask, 2, 9), header, answer })[1]
      end
      place = place + 41
    end
    if number == 1 then
      if answer then return answer end
      if fits then return value end
      return { 0, value }
    end
    length = length + 1
    if answer then
      answers[length] = 'g'
      long[#long + 1] = answer
    elseif fits then
      answers[length] = value or 'n'
    else
      answers[length] = 'r'
      length = length + 1
      answers[length] = value
    end
  end
  answers = table.concat(answers)
  if #long == 0 then return answers end
  table.insert(long, 1, answers)
  return long
end
return general(KEYS, ARGV)
