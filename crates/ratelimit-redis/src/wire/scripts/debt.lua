-- The state of a bucket. Value: 'b', the instant of the newest charge, then the debts by ascending interval: a single one
-- as its theoretical arrival time (TAT) and interval, several as TAT, interval and receipt each. For what debts are and how
-- they are computed, see core's meter/bucket.rs.

-- units * (high, low), at most 2^62 - 1.
local function times(units, high, low)
  local h, l = 0, 0
  for shift = 2, 0, -1 do
    local limb = floor(units / 262144 ^ shift) % 262144
    l = l * 262144 + limb * low
    local carry = floor(l / WORD)
    h, l = h * 262144 + limb * high + carry, l - carry * WORD
  end
  if h >= 1073741824 then return 1073741823, WORD - 1 end
  return h, l
end

-- time * by / from, where `by` is at most `from` and `from` is below 2^59: the quotient, whether there is a remainder, and
-- that.
local function convert(high, low, from_high, from_low, by_high, by_low)
  if from_high == by_high and from_low == by_low then return high, low, false, 0, 0 end
  local from = from_high * WORD + from_low
  -- Long division with digits of 16 bits; h, l is the remainder.
  local to_high, to_low, h, l = 0, 0, 0, 0
  for nth = 1, 4 do
    local digit = nth < 3 and high or low
    if nth % 2 == 1 then digit = floor(digit / 65536) else digit = digit % 65536 end
    l = l * 65536 + digit * by_low
    local carry = floor(l / WORD)
    h, l = h * 65536 + digit * by_high + carry, l - carry * WORD
    -- Less than 2^17, so that the quotient of doubles is off by one at most.
    local part = floor((h * WORD + l) / from)
    local taken = part * from_low
    carry = floor(taken / WORD)
    h, l = h - part * from_high - carry, l - (taken - carry * WORD)
    if l < 0 then h, l = h - 1, l + WORD end
    if h < 0 then
      part = part - 1
      h, l = plus(h, l, from_high, from_low)
    elseif not less(h, l, from_high, from_low) then
      part = part + 1
      h, l = minus(h, l, from_high, from_low)
    end
    to_low = to_low * 65536 + part
    carry = floor(to_low / WORD)
    to_high, to_low = to_high * 65536 + carry, to_low - carry * WORD
  end
  return to_high, to_low, h > 0 or l > 0, h, l
end

-- The debts of a value; nil if it is not a bucket.
local function bucket_debts(value)
  local size = #value == 25 and 16 or 24
  local number = (#value - 9) / size
  if number < 1 or number > 16 or number ~= floor(number) or string.byte(value) ~= 98 then return nil end
  local debts, last_high, last_low = {}, 0, 0
  for nth = 1, number do
    local place = 10 + size * (nth - 1)
    local tat_high, tat_low, high, low = unpack('>I4I4I4I4', value, place)
    local receipt_high, receipt_low = tat_high, tat_low
    if size == 24 then receipt_high, receipt_low = unpack('>I4I4', value, place + 16) end
    if high >= 134217728 or not less(last_high, last_low, high, low) then return nil end
    debts[nth] = {
      tat_high = tat_high, tat_low = tat_low, high = high, low = low,
      receipt_high = receipt_high, receipt_low = receipt_low,
    }
    last_high, last_low = high, low
  end
  return debts
end

-- What is left of a debt, in nanoseconds.
local function debt_left(debt, seen_high, seen_low)
  return minus(debt.tat_high, debt.tat_low, seen_high, seen_low)
end

-- How far an instant is into its step, if steps are counted from `at`. A step beyond 2^59 ns never ends.
local function into_step(high, low, at_high, at_low, step_high, step_low)
  high, low = minus(high, low, at_high, at_low)
  if step_high >= 134217728 then return high, low end
  local _, _, _, h, l = convert(high, low, step_high, step_low, 0, 1)
  return h, l
end

-- The instant, not before `at`, as of which a bucket is decided. If its units drain in steps, this is the begin of the step,
-- unless all have drained by then.
local function bucket_seen(debts, high, low, at_high, at_low, step_high, step_low)
  if less(high, low, at_high, at_low) then high, low = at_high, at_low end
  if step_high == 0 and step_low == 0 then return high, low end
  local h, l = minus(high, low, into_step(high, low, at_high, at_low, step_high, step_low))
  for nth = 1, #debts do
    if less(h, l, debts[nth].tat_high, debts[nth].tat_low) then return h, l end
  end
  return high, low
end

-- The maximum left of the debts from this place on, at the interval of `to`, rounded up.
local function debts_left(debts, place, to, seen_high, seen_low)
  local high, low = 0, 0
  for nth = place, #debts do
    local debt = debts[nth]
    local h, l = debt_left(debt, seen_high, seen_low)
    local more
    h, l, more = convert(h, l, debt.high, debt.low, to.high, to.low)
    if more then h, l = plus(h, l, 0, 1) end
    if less(high, low, h, l) then high, low = h, l end
  end
  return high, low
end

-- The part of the debt at this place that does not come from slower ones.
local function debt_own(debts, place, seen_high, seen_low)
  local debt = debts[place]
  local high, low = debts_left(debts, place, debt, seen_high, seen_low)
  return minus(high, low, debts_left(debts, place + 1, debt, seen_high, seen_low))
end

-- The place of the debt of this interval, or where it belongs, and whether it exists.
local function debt_place(debts, high, low)
  local place = 1
  while debts[place] and less(debts[place].high, debts[place].low, high, low) do place = place + 1 end
  local debt = debts[place]
  return place, debt ~= nil and debt.high == high and debt.low == low
end

-- The value of a bucket, in the short form if possible and `long` is not set.
local function bucket_value(at_high, at_low, debts, long)
  local value = pack('>BI4I4', 98, at_high, at_low)
  local first = debts[1]
  local alone = #debts == 1 and first.receipt_high == first.tat_high and first.receipt_low == first.tat_low
  for nth = 1, #debts do
    local debt = debts[nth]
    value = value .. pack('>I4I4I4I4', debt.tat_high, debt.tat_low, debt.high, debt.low)
    if long or not alone then value = value .. pack('>I4I4', debt.receipt_high, debt.receipt_low) end
  end
  return value
end
