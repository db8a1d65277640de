-- Gives units back. ARGV: a header, then one argument for each key. Expiry stays as it is, unless more has to be remembered.

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
  local _, receipt_high, receipt_low, add_high, add_low, interval, burst = unpack('>BI4I4I4I4c8I8', arg)
  local value = read('GET', key)
  if not value then return value == false end
  if #value ~= 25 or string.byte(value) ~= 98 then return false end
  local high, low
  now_high, now_low, high, low = bucket_debt(value, now_high, now_low, interval, burst)
  local left_high, left_low = minus(receipt_high, receipt_low, now_high, now_low)
  if less(add_high, add_low, left_high, left_low) then left_high, left_low = add_high, add_low end
  if left_high + left_low > 0 and high + low > 0 then
    high, low = minus(high, low, left_high, left_low)
    high, low = plus(now_high, now_low, high, low)
    redis.call('SETRANGE', key, '9', pack('>I4I4', high, low) .. interval)
    local old_high, old_low = unpack('>I4I4', value, 10)
    if less(old_high, old_low, high, low) then
      -- The limit was lowered meanwhile: what is left drains more slowly.
      local more_high, more_low = minus(high, low, old_high, old_low)
      local more = math.ceil((more_high * WORD + more_low) / 1000000)
      redis.call('PEXPIRE', key, string.format('%.0f', redis.call('PTTL', key) + more))
    end
  end
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
