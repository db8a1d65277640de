-- The bucket meter: its claims.

local function bucket_see(key, arg, now_high, now_low)
  local _, class, room_high, room_low, add_high, add_low, interval, burst = unpack('>BBI4I4I4I4c8I8', arg)
  local value = read('GET', key)
  if value == nil then return nil end
  local asked_high, asked_low, high, low = now_high, now_low, 0, 0
  if value then
    if #value ~= 25 or string.byte(value) ~= 98 then return nil end
    now_high, now_low, high, low = bucket_debt(value, now_high, now_low, interval, burst)
  end
  return {
    kind = 98, key = key, reply = value or '', cost = class, interval = interval, add_high = add_high, add_low = add_low,
    asked_high = asked_high, asked_low = asked_low, now_high = now_high, now_low = now_low, high = high, low = low,
    -- class 0: a cost of zero; 1: a cost up to the burst; 2: more.
    fits = class == 0 or (class == 1 and not less(room_high, room_low, high, low)),
  }
end

local function bucket_charge(c, slack)
  local high, low = plus(c.high, c.low, c.add_high, c.add_low)
  if high >= 1073741824 then high, low = 1073741823, WORD - 1 end -- at most 2^62 - 1
  high, low = plus(c.now_high, c.now_low, high, low)
  local value = pack('>BI4I4I4I4', 98, c.now_high, c.now_low, high, low) .. c.interval
  -- Until the next whole high part: as long as that stays the same, so does the expiry (see fast.lua).
  high, low = minus(high + 1, 0, c.asked_high, c.asked_low)
  local left = math.ceil((high * WORD + low) / 1000000)
  redis.call('SET', c.key, value, 'PX', string.format('%.0f', left + slack))
end
