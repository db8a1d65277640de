-- The window meter. Value: 'w', segment number, microseconds and nanoseconds into the segment (of the newest charge); with
-- more than one carried segment the total as a pair; then the counts by age.

-- Whether oldest * (S - e) <= room * S, where S is in microseconds and e in microseconds and nanoseconds.
local function weighted_fits(oldest, room, S, e, r)
  if oldest == 0 then return true end
  local left, right = oldest * ((S - e) * 1000 - r), room * S * 1000
  if left < EXACT and right < EXACT then return left <= right end
  -- Each side has at most four rounding errors of 2^-53. If they differ by more than 1e-14 relatively, rounding cannot have
  -- changed their order.
  if math.abs(left - right) > left * 1e-14 then return left < right end
  -- Too close for doubles: computes the difference exactly, in limbs base 10^6. No limb exceeds 4e15.
  local x, D = S - e, { [0] = 0, 0, 0, 0, 0 }
  local function limbs(n)
    local low = n % 1000000
    n = (n - low) / 1000000
    local middle = n % 1000000
    return { [0] = low, middle, (n - middle) / 1000000 }
  end
  local o, c, s, t = limbs(oldest), limbs(room), limbs(S), limbs(x)
  for i = 0, 2 do
    for j = 0, 2 do D[i + j] = D[i + j] + 1000 * (c[i] * s[j] - o[i] * t[j]) end
    D[i] = D[i] + r * o[i]
  end
  for i = 0, 3 do D[i + 1] = D[i + 1] + (D[i] - D[i] % 1000000) / 1000000 end
  return D[4] >= 0
end

-- What is known of a claim: its arguments and the stored state. Nothing if the value is not a window.
local function window_see(key, arg, micros)
  local _, index, e, r, cost, limit, p, strict, S, offset = unpack('>BI8I8I2I8I8I2BI8I8', arg)
  if micros then
    r, e = 0, math.fmod(micros + offset, S)
    index = (micros + offset - e) / S
  end
  -- Of a long window only the ends are read: the header, the newest count, and the counts that expire.
  local long = p > 64
  local value
  if long then value = read('GETRANGE', key, '0', '34') else value = read('GET', key) end
  if value == nil then return nil end
  if long and value == '' then value = false end
  local asked_index, asked_e, aged = index, e, 0
  -- The units that count in full, as a pair; those that are weighted.
  local high, low, oldest = 0, 0, 0
  if value then
    local size = long and redis.call('STRLEN', key) or #value
    if size ~= (p > 1 and 35 or 27) + 8 * p or string.byte(value) ~= 119 then return nil end
    local _, at_index, at_e, at_r, first, second = unpack(p > 0 and '>BI8I8I2I8I8' or '>BI8I8I2I8', value)
    if at_index > index or (at_index == index and (at_e > e or (at_e == e and at_r > r))) then
      index, e, r = at_index, at_e, at_r
    end
    aged = index - at_index
    if aged > p then -- all of it has expired
    elseif p == 0 then
      low = first
    elseif p == 1 then
      if aged == 1 then first, second = 0, first end
      if strict == 1 then low = first + second else low, oldest = first, second end
    else
      high, low = unpack('>I4I4', value, 20)
      local left = 28 + 8 * (p - aged) -- the oldest count left; after it, those that have expired
      local tail = long and redis.call('GETRANGE', key, string.format('%.0f', left - 1), '-1') or string.sub(value, left)
      for place = 9, 8 * aged + 1, 8 do
        high, low = minus(high, low, unpack('>I4I4', tail, place))
      end
      if strict == 0 then
        oldest = unpack('>I8', tail)
        high, low = minus(high, low, unpack('>I4I4', tail))
      end
    end
  end
  local room = limit - (high * WORD + low) - cost
  return {
    kind = 119, key = key, value = value, long = long, reply = value or '', cost = cost, p = p, aged = aged,
    index = index, e = e, r = r, high = high, low = low, oldest = oldest,
    fits = cost == 0 or (room >= 0 and weighted_fits(oldest, room, S, e, r)),
    lives = (index - asked_index + p + 1) * S - asked_e,
  }
end

local function window_charge(c, slack)
  local p, aged, value = c.p, c.aged, c.value
  local in_place = value and aged == 0
  if c.long and value and aged > 0 then value = redis.call('GET', c.key) end
  local first, rest, total = 0, '', ''
  local most = 999999999999999
  if not value or aged > p then
    rest = string.rep('\0', 8 * p)
  else
    local counts = p > 1 and 28 or 20
    if aged == 0 then
      first = unpack('>I8', value, counts)
    else
      rest = string.rep('\0', 8 * (aged - 1)) .. string.sub(value, counts, counts - 1 + 8 * (p + 1 - aged))
    end
  end
  local added = math.min(c.cost, most - first)
  first = first + added
  if p > 1 then
    c.high, c.low = plus(c.high, c.low, floor(added / WORD), added % WORD)
    total = pack('>I4I4', plus(c.high, c.low, floor(c.oldest / WORD), c.oldest % WORD))
    c.reply = pack('>BI8I8I2I4I4I8', 87, c.index, c.e, c.r, c.high, c.low, c.oldest)
  end
  value = pack('>BI8I8I2', 119, c.index, c.e, c.r) .. total .. pack('>I8', first)
  if in_place then
    -- The end of the segment has not changed, and neither has the expiry.
    redis.call('SETRANGE', c.key, '0', value)
  else
    redis.call('SET', c.key, value .. rest, 'PX', string.format('%.0f', math.ceil(c.lives / 1000) + slack))
  end
end
