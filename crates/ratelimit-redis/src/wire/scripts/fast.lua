-- The fast path: slices of one claim each, charged at the caller's time, on windows of at most one carried segment and on
-- buckets whose numbers are below 2^53. A single slice is decided without functions or tables, several without functions; a
-- claim that turns out to need more is left to `general`. ARGV: the header for `general`, with a 2 instead of the server
-- flag, or a 3 if no key occurs twice; then a record for each key. A record that begins with '=' equals the one before it
-- except for its instant.
--
-- Reply to one claim: the value before the charge, false if there was none; {0, value} if nothing was charged. Reply to
-- several: one string with, for each claim, that value, 'n' if there was none, 'r' and the value if nothing was charged, or
-- 'g' if `general` decided. With any 'g', an array of that string and the answers of `general`.
--
-- Letters are compared as bytes: 61 is '=', 98 'b'ucket, 102 'f'ixed window, 115 's'liding window, 116 s't'rict sliding
-- window, and 119 'w'indow, with which the stored value of a window begins (that of a bucket with 'b').
local ask, byte = ARGV[1], string.byte
local way = byte(ask)
if way > 1 then
  local spread, unpack, pack, get, call = unpack or table.unpack, struct.unpack, struct.pack, redis.pcall, redis.call
  local keys, number, place = KEYS, #KEYS, 10
  local values, seen, answers, long, length
  if number > 1 then
    values, answers, long, length = call('MGET', spread(keys)), {}, {}, 0
    if way == 2 then seen = {} end
  end
  local shape, index, cost, limit, S, room, add, interval
  for nth = 1, number do
    local key, value = keys[nth]
    if seen then
      if not seen[key] then value = values[nth] end
      seen[key] = true -- a later claim reads the key again, with this charge
    elseif values then
      value = values[nth]
    end
    -- If the key holds something other than a string, this is a table with an error. `#value` is zero then, which is not the
    -- size of a meter, so `general` decides.
    value = value or get('GET', key)
    -- `fits` is true, false, or nil while it is not certain here: then `general` decides, and `answer` is what it answers.
    local mark, fits, answer = byte(ask, place)
    if mark ~= 61 then shape = mark end
    if shape ~= 98 then
      -- A window. Its claim is `e` microseconds and `r` nanoseconds into segment `index`, each of which has S microseconds.
      local e, r
      if mark == 61 then
        e, r, place = unpack('>I8I2', ask, place + 1)
      else
        index, cost, limit, S, e, r, place = unpack('>I8I8I8I8I8I2', ask, place + 1)
      end
      local tag, at, at_e, at_r, count, old
      if not value then
        fits, old = true, 0
      elseif #value == (shape == 102 and 27 or 35) then
        tag, at, at_e, at_r, count, old = unpack(shape == 102 and '>BI8I8I2I8' or '>BI8I8I2I8I8', value)
        if at == index then
          if at_e < e or (at_e == e and at_r < r) then at_e, at_r = e, r end
        elseif at == index - 1 then
          at_e, at_r, count, old = e, r, 0, count
        else
          count, old = 0, 0
        end
        if at > index or tag ~= 119 then -- stays nil: the meter is a segment ahead, or not a window
        elseif shape == 102 then
          fits = count + cost <= limit
        else
          local free = limit - count - cost
          if old == 0 or shape == 116 then
            fits = old <= free
          elseif free < 0 then
            fits = false
          else
            local left, right = old * ((S - at_e) * 1000 - at_r), free * S * 1000
            if left < 9007199254740992 and right < 9007199254740992 then fits = left <= right
            -- Each side has at most four rounding errors of 2^-53. If they differ by more than 1e-14 relatively, rounding
            -- cannot have changed their order. Otherwise `fits` stays nil.
            elseif math.abs(left - right) > left * 1e-14 then fits = left < right end
          end
        end
      end
      if not fits then -- nothing is written
      elseif at == index then
        -- The end of the segment has not changed, and neither has the expiry.
        call('SETRANGE', key, '9', pack('>I8I2I8', at_e, at_r, count + cost))
      else
        local new = pack(shape == 102 and '>BI8I8I2I8' or '>BI8I8I2I8I8', 119, index, e, r, cost, old)
        local left = math.ceil(((shape == 102 and S or 2 * S) - e) / 1000)
        call('SET', key, new, 'PX', string.format('%.0f', left + unpack('>I8', ask, 2)))
      end
      if fits == nil then
        local carried, strict = shape == 102 and 0 or 1, shape == 116 and 1 or 0
        answer = pack('>BI8I8I2I8I8I2BI8I8', 119, index, e, r, cost, limit, carried, strict, S, 0)
        answer = general({ key }, { '\0' .. string.sub(ask, 2, 9), '\1\1\0\0\0\0\0\0\0\0', answer })[1]
      end
    else
      local high, low
      if mark == 61 then
        high, low, place = unpack('>I4I4', ask, place + 1)
      else
        room, add, interval, high, low, place = unpack('>I8I8c8I4I4', ask, place + 1)
      end
      local at_high, at_low, debt, old_high = high, low, 0
      if value and #value == 25 then
        local tag, h, l, tat_high, tat_low, old = unpack('>BI4I4I4I4c8', value)
        old_high = tat_high
        if h > high or (h == high and l > low) then at_high, at_low = h, l end
        -- Exact below 2^53; a larger debt exceeds every room anyway.
        debt = (tat_high - at_high) * 4294967296 + tat_low - at_low
        -- Not a bucket: instants after 2116 and intervals from 2^59 ns on do not exist.
        local strange = tag ~= 98 or h >= 1073741824 or tat_high >= 2147483648 or string.byte(old) > 7
        if strange or (debt > 0 and old ~= interval) then debt = nil elseif debt < 0 then debt = 0 end
      elseif value then
        debt = nil
      end
      if debt then fits = debt <= room end
      if fits then
        debt = at_low + debt + add -- below 2^53: see `high`
        local more = math.floor(debt / 4294967296)
        local h, l = at_high + more, debt - more * 4294967296
        local new = pack('>BI4I4I4I4c8', 98, at_high, at_low, h, l, interval)
        if h == old_high then
          call('SETRANGE', key, '0', new)
        else
          -- Until the next whole high part, at most four seconds: the expiry changes only with the high part.
          local left = ((h + 1 - high) * 4294967296 - low) / 1000000
          call('SET', key, new, 'PX', string.format('%.0f', math.ceil(left) + unpack('>I8', ask, 2)))
        end
      elseif fits == nil then
        local header, nanos = pack('>BBI4I4', 1, 1, high, low), unpack('>I8', interval)
        answer = pack('>BBI8I8c8I8', 98, 1, room / nanos, add / nanos, interval, 0)
        answer = general({ key }, { '\0' .. string.sub(ask, 2, 9), header, answer })[1]
      end
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
