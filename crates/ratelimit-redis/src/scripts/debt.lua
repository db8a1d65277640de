-- The bucket meter. Value: 'b', the instant of the newest charge, the theoretical arrival time, the interval.

-- The instant of the decision and the debt that has not drained by then. After a change of the interval the units of the
-- newest charge are kept: those begun count whole, and no more than `burst`. They drain at the new rate since then, and
-- none is left when they would have drained at the old one.
local function bucket_debt(value, now_high, now_low, interval, burst)
  local _, at_high, at_low, tat_high, tat_low, old_high, old_low = unpack('>BI4I4I4I4I4I4', value)
  if less(now_high, now_low, at_high, at_low) then now_high, now_low = at_high, at_low end
  local high, low = minus(tat_high, tat_low, now_high, now_low)
  if string.sub(value, 18) == interval or (high == 0 and low == 0) then return now_high, now_low, high, low end
  if old_high == 0 and old_low == 0 then old_low = 1 end
  high, low = minus(tat_high, tat_low, at_high, at_low)

  -- units * (h, l), for products below 2^63.
  local function times(units, h, l)
    local ah, al = 0, 0
    for shift = 2, 0, -1 do
      local limb = floor(units / 262144 ^ shift) % 262144
      al = al * 262144 + limb * l
      local carry = floor(al / WORD)
      ah, al = ah * 262144 + limb * h + carry, al - carry * WORD
    end
    return ah, al
  end

  -- The quotient of doubles is off by less than one where it matters; go up to the exact one from below.
  local guess = floor((high * WORD + low) / (old_high * WORD + old_low))
  local used = burst
  if guess <= burst + 2 then
    used = math.max(guess - 2, 0)
    while used < burst do
      local h, l = times(used, old_high, old_low)
      if not less(h, l, high, low) then break end
      used = used + 1
    end
  end
  high, low = plus(at_high, at_low, times(used, unpack('>I4I4', interval)))
  return now_high, now_low, minus(high, low, now_high, now_low)
end
