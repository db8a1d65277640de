-- Gives units back. ARGV: a header, then one argument for each key. The expiry is kept.

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
  now_high, now_low = bucket_seen(debts, now_high, now_low, at_high, at_low, step_high, step_low)
  local own, is_there = debt_place(debts, high, low)
  if not is_there then return true end
  local debt = debts[own]
  local after_high, after_low = minus(debt.receipt_high, debt.receipt_low, receipt_high, receipt_low)
  if unqueued_high < 2147483648 then
    -- Turns that were assigned after this charge stay as they are.
    if #debts > 1 then return true end
    local left_high, left_low = debt_left(debt, now_high, now_low)
    if (after_high > 0 or after_low > 0) and less(unqueued_high, unqueued_low, left_high, left_low) then return true end
  end
  local back_high, back_low = debt_own(debts, own, now_high, now_low)
  back_high, back_low = minus(back_high, back_low, after_high, after_low)
  local drain_high, drain_low = times(cost, high, low)
  if less(drain_high, drain_low, back_high, back_low) then back_high, back_low = drain_high, drain_low end
  if back_high == 0 and back_low == 0 then return true end
  debt.receipt_high, debt.receipt_low = minus(debt.receipt_high, debt.receipt_low, back_high, back_low)
  for place = 1, own do
    debt = debts[place]
    local h, l = debts_left(debts, place, debt, now_high, now_low)
    h, l = minus(h, l, convert(back_high, back_low, high, low, debt.high, debt.low))
    debt.tat_high, debt.tat_low = plus(now_high, now_low, h, l)
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
