-- The claims of the bucket meter.

local function bucket_see(key, arg, now_high, now_low)
  -- room: the burst minus the cost. class 0: a cost of zero, which always fits; 1: a cost up to the burst; 2: more.
  -- step: zero if units drain continuously.
  local _, class, room, cost, high, low, step_high, step_low = unpack('>BBI8I8I4I4I4I4', arg)
  local value = read('GET', key)
  if value == nil then return nil end
  local asked_high, asked_low, debts, fits = now_high, now_low, {}, class < 2
  if value then
    debts = bucket_debts(value)
    if not debts then return nil end
    local _, at_high, at_low = unpack('>BI4I4', value)
    now_high, now_low = bucket_seen(debts, now_high, now_low, at_high, at_low, step_high, step_low)
    for nth = 1, class == 1 and #debts or 0 do
      local h, l = times(room, debts[nth].high, debts[nth].low)
      fits = fits and not less(h, l, debt_left(debts[nth], now_high, now_low))
    end
  end
  return {
    kind = 98, key = key, reply = value or '', debts = debts, fits = fits, cost = cost, high = high, low = low,
    step_high = step_high, step_low = step_low,
    asked_high = asked_high, asked_low = asked_low, now_high = now_high, now_low = now_low,
  }
end

-- Adds the units to the debts of this interval and of all shorter intervals.
local function bucket_charge(c, slack)
  local now_high, now_low, debts = c.now_high, c.now_low, {}
  for nth = 1, #c.debts do
    local high, low = debt_left(c.debts[nth], now_high, now_low)
    if high > 0 or low > 0 then debts[#debts + 1] = c.debts[nth] end
  end
  local claimed, is_there = debt_place(debts, c.high, c.low)
  if not is_there then
    table.insert(debts, claimed, {
      tat_high = now_high, tat_low = now_low, high = c.high, low = c.low,
      receipt_high = now_high, receipt_low = now_low,
    })
  end
  local most_high, most_low = plus(now_high, now_low, 1073741823, WORD - 1) -- a debt is at most 2^62 - 1
  -- An instant plus the time in which the cost drains.
  local function after(debt, high, low)
    high, low = plus(high, low, times(c.cost, debt.high, debt.low))
    if less(most_high, most_low, high, low) then return most_high, most_low end
    return high, low
  end
  local debt = debts[claimed]
  debt.receipt_high, debt.receipt_low = after(debt, debt.receipt_high, debt.receipt_low)
  for place = 1, claimed do
    debt = debts[place]
    local high, low = debts_left(debts, place, debt, now_high, now_low)
    debt.tat_high, debt.tat_low = after(debt, plus(now_high, now_low, high, low))
  end
  if #debts > 16 then table.remove(debts, 2) end
  local high, low = 0, 0
  for nth = 1, #debts do
    if less(high, low, debts[nth].tat_high, debts[nth].tat_low) then high, low = debts[nth].tat_high, debts[nth].tat_low end
  end
  if c.step_high >= 134217728 then
    high, low = 1073741824, 0 -- 2^62
  elseif c.step_high > 0 or c.step_low > 0 then
    local h, l = into_step(high, low, now_high, now_low, c.step_high, c.step_low)
    if h > 0 or l > 0 then high, low = plus(high, low, minus(c.step_high, c.step_low, h, l)) end
  end
  -- Until the next whole high part: the expiry changes only with the high part (see fast.lua).
  high, low = minus(high + 1, 0, c.asked_high, c.asked_low)
  local left = math.ceil((high * WORD + low) / 1000000)
  redis.call('SET', c.key, bucket_value(now_high, now_low, debts), 'PX', string.format('%.0f', left + slack))
end
