-- The log meter. Value: 'l', place of the oldest unit, number of units, the newest instant, then a ring of instants of
-- eight bytes for each unit. To grow, the value is rewritten: SETRANGE past the end and APPEND would double its memory.

local function log_sight(blocked, live, newest_high, newest_low, blocker_high, blocker_low, now_high, now_low)
  return pack('>BBI4I4I4I4I4I4I4', 76, blocked, live, newest_high, newest_low, blocker_high, blocker_low, now_high, now_low)
end

local function log_see(key, arg, now_high, now_low)
  local _, window_high, window_low, limit, added, demand = unpack('>BI4I4I8I8I8', arg)
  -- A short log is read with one command.
  local value, size
  if limit <= 128 then
    value = read('GET', key)
    size = value and #value or value == false and 0 or nil
  else
    size = read('STRLEN', key)
  end
  if size == nil then return nil end
  local head, count, newest_high, newest_low, gone = 0, 0, 0, 0, 0
  local places = (size - 17) / 8
  local asked_high, asked_low = now_high, now_low
  if size > 0 then
    local header = value or read('GETRANGE', key, '0', '16')
    if places < 1 or places ~= floor(places) or string.byte(header) ~= 108 then return nil end
    _, head, count, newest_high, newest_low = unpack('>BI4I4I4I4', header)
    if head >= places or count > places then return nil end
    if less(now_high, now_low, newest_high, newest_low) then now_high, now_low = newest_high, newest_low end
  else
    places = 0
  end

  local function unit(nth)
    local place = 17 + 8 * ((head + nth) % places)
    if value then return unpack('>I4I4', value, place + 1) end
    return unpack('>I4I4', redis.call('GETRANGE', key, string.format('%.0f', place), string.format('%.0f', place + 7)))
  end

  if count > 0 then
    local edge_high, edge_low = minus(now_high, now_low, window_high, window_low)
    local function has_left(nth)
      local high, low = unit(nth)
      return less(high, low, edge_high, edge_low)
    end
    if has_left(0) then
      local last, bound = 0, 1 -- `last` has left; `bound` has not, or is the end
      while bound < count and has_left(bound) do last, bound = bound, bound * 2 end
      bound = math.min(bound, count)
      while bound - last > 1 do
        local middle = floor((last + bound) / 2)
        if has_left(middle) then last = middle else bound = middle end
      end
      gone = bound
    end
  end
  local live = count - gone
  local fits = demand == 0 or live + demand <= limit
  local blocked, blocker_high, blocker_low = 0, 0, 0
  if not fits and demand <= limit then
    blocked = 1
    blocker_high, blocker_low = unit(gone + live + demand - limit - 1)
  end
  return {
    kind = 108, key = key, fits = fits, cost = demand, added = added, limit = limit,
    head = head, places = places, gone = gone, live = live, window_high = window_high, window_low = window_low,
    now_high = now_high, now_low = now_low, asked_high = asked_high, asked_low = asked_low,
    reply = log_sight(blocked, live, newest_high, newest_low, blocker_high, blocker_low, now_high, now_low),
  }
end

-- The units `first` to `first + number - 1` of a ring that begins at `head`.
local function log_units(key, head, places, first, number)
  if number == 0 then return '' end
  local begin = (head + first) % places
  local function range(from, to)
    return redis.call('GETRANGE', key, string.format('%.0f', 17 + 8 * from), string.format('%.0f', 16 + 8 * to))
  end
  if begin + number <= places then return range(begin, begin + number) end
  return range(begin, places) .. range(0, begin + number - places)
end

local function log_charge(c, slack)
  local key, places, added = c.key, c.places, c.added
  local instant = pack('>I4I4', c.now_high, c.now_low)
  local kept = math.min(c.live, c.limit - added)
  local dropped = c.gone + c.live - kept
  local needed = kept + added
  local high, low = plus(c.now_high, c.now_low, c.window_high, c.window_low)
  high, low = minus(high, low, c.asked_high, c.asked_low)
  local left = math.ceil((high * WORD + low + 1) / 1000000) + slack
  -- The units of another limit may count for longer: concurrency limits with different leases share a log.
  if places > 0 then left = math.max(left, redis.call('PTTL', key)) end
  left = string.format('%.0f', left)
  if needed > places or (places > 16 and needed * 4 < places) then
    local room = math.max(needed, math.min(c.limit, needed + math.max(4, floor(needed / 8))))
    local units = log_units(key, c.head, places, dropped, kept)
    local value = pack('>BI4I4', 108, 0, needed) .. instant .. units .. string.rep(instant, added)
    redis.call('SET', key, value .. string.rep('\0', 8 * (room - needed)), 'PX', left)
  else
    local head = (c.head + dropped) % places
    local place = (head + kept) % places
    local straight = math.min(added, places - place)
    redis.call('SETRANGE', key, string.format('%.0f', 17 + 8 * place), string.rep(instant, straight))
    if straight < added then redis.call('SETRANGE', key, '17', string.rep(instant, added - straight)) end
    redis.call('SETRANGE', key, '0', pack('>BI4I4', 108, head, needed) .. instant)
    redis.call('PEXPIRE', key, left)
  end
  c.reply = log_sight(0, needed, c.now_high, c.now_low, 0, 0, c.now_high, c.now_low)
end
