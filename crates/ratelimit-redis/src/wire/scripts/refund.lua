-- Gives units back. ARGV: a header, then one argument for each key. The expiry is kept, except if a step begins anew.

local function window_refund(key, arg)
  local _, index, cost, p = unpack('>BI8I8I2', arg)
  local value = read('GET', key)
  if not value then return value == false end
  if #value ~= (p > 1 and 35 or 27) + 8 * p or string.byte(value) ~= 119 then return false end
  local _, at_index = unpack('>BI8', value)
  local age = at_index - index
  if age < 0 or age > p then return true end
  local place = (p > 1 and 28 or 20) + 8 * age
  local count = unpack('>I8', value, place)
  local back = math.min(cost, count)
  redis.call('SETRANGE', key, string.format('%.0f', place - 1), pack('>I8', count - back))
  if p > 1 then
    local high, low = unpack('>I4I4', value, 20)
    redis.call('SETRANGE', key, '19', pack('>I4I4', minus(high, low, floor(back / WORD), back % WORD)))
  end
  return true
end

local function bucket_refund(key, arg, now_high, now_low)
  -- unqueued: what may be in the bucket before somebody waits for a turn; beyond 2^63 if nobody ever does.
  local _, receipt_high, receipt_low, cost, high, low, step_high, step_low, unqueued_high, unqueued_low =
    unpack('>BI4I4I8I4I4I4I4I4I4', arg)
  local value = read('GET', key)
  if not value then return value == false end
  local debts = bucket_debts(value)
  if not debts then return false end
  local _, at_high, at_low = unpack('>BI4I4', value)
  local asked_high, asked_low = now_high, now_low
  now_high, now_low = bucket_seen(debts, now_high, now_low, at_high, at_low, step_high, step_low)
  local claimed, is_there = debt_place(debts, high, low)
  if not is_there then return true end
  local debt = debts[claimed]
  local after_high, after_low = minus(debt.receipt_high, debt.receipt_low, receipt_high, receipt_low)
  if unqueued_high < 2147483648 then
    -- Turns that were assigned after this charge stay as they are.
    if #debts > 1 then return true end
    local left_high, left_low = debt_left(debt, now_high, now_low)
    if (after_high > 0 or after_low > 0) and less(unqueued_high, unqueued_low, left_high, left_low) then return true end
  end
  local before_high, before_low = debt_own(debts, claimed, now_high, now_low)
  before_high, before_low = minus(before_high, before_low, after_high, after_low)
  local back_high, back_low = times(cost, high, low)
  local is_oldest = not less(back_high, back_low, before_high, before_low)
  if is_oldest then back_high, back_low = before_high, before_low end
  if back_high == 0 and back_low == 0 then return true end
  for place = 1, claimed do
    local of = debts[place]
    local h, l = debt_left(of, now_high, now_low)
    h, l = minus(h, l, convert(back_high, back_low, high, low, of.high, of.low))
    of.tat_high, of.tat_low = plus(now_high, now_low, h, l)
  end
  local is_empty = true
  for place = 1, #debts do
    is_empty = is_empty and not less(now_high, now_low, debts[place].tat_high, debts[place].tat_low)
  end
  if is_oldest and not is_empty and step_high < 134217728 and (step_high > 0 or step_low > 0) then
    -- The refunded request may have begun the step, which begins anew: see core's meter/bucket.rs.
    if less(at_high, at_low, asked_high, asked_low) then at_high, at_low = asked_high, asked_low end
    for place = 1, #debts do
      local of = debts[place]
      of.tat_high, of.tat_low = plus(at_high, at_low, debt_left(of, now_high, now_low))
    end
    local h, l = minus(at_high, at_low, now_high, now_low)
    local life = redis.call('PTTL', key)
    if life > 0 then
      redis.call('PEXPIRE', key, string.format('%.0f', life + math.ceil((h * WORD + l) / 1000000)))
    end
  else
    debt.receipt_high, debt.receipt_low = minus(debt.receipt_high, debt.receipt_low, back_high, back_low)
  end
  redis.call('SETRANGE', key, '0', bucket_value(at_high, at_low, debts, #value > 25))
  return true
end

local function log_refund(key, arg)
  local _, receipt_high, receipt_low, cost = unpack('>BI4I4I8', arg)
  local value = read('GET', key)
  if not value then return value == false end
  local places = (#value - 17) / 8
  if places < 1 or places ~= floor(places) or string.byte(value) ~= 108 then return false end
  local _, head, count = unpack('>BI4I4', value)
  if head >= places or count > places then return false end
  local units = string.sub(value, 18 + 8 * head, 17 + 8 * math.min(head + count, places))
  if head + count > places then units = units .. string.sub(value, 18, 17 + 8 * (head + count - places)) end

  -- How many units come before the receipt, or at it if `inclusive`.
  local function before(inclusive)
    local low, high = 0, count
    while low < high do
      local middle = floor((low + high) / 2)
      local h, l = unpack('>I4I4', units, 1 + 8 * middle)
      local sooner = less(h, l, receipt_high, receipt_low)
      if sooner or (inclusive and h == receipt_high and l == receipt_low) then low = middle + 1 else high = middle end
    end
    return low
  end

  local first = before(false)
  local back = math.min(cost, before(true) - first)
  if back == 0 then return true end
  units = string.sub(units, 1, 8 * first) .. string.sub(units, 1 + 8 * (first + back))
  count = count - back
  local newest = count > 0 and string.sub(units, -8) or string.rep('\0', 8)
  redis.call('SETRANGE', key, '0', pack('>BI4I4', 108, 0, count) .. newest .. units)
  return true
end

local server, now_high, now_low = unpack('>BI4I4', ARGV[1])
if server == 1 then now_high, now_low = server_time() end
local sound = 1
for nth = 1, #KEYS do
  local key, text = KEYS[nth], ARGV[nth + 1]
  local kind, done = string.byte(text)
  if kind == 119 then done = window_refund(key, text)
  elseif kind == 98 then done = bucket_refund(key, text, now_high, now_low)
  else done = log_refund(key, text) end
  if not done then sound = 0 end
end
return sound
