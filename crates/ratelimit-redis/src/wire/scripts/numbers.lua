-- Exact arithmetic: Lua numbers are doubles, so integers are exact up to 2^53. Larger ones (nanoseconds since the epoch)
-- are pairs of a high and a low part, base 2^32.
local WORD, EXACT = 4294967296, 9007199254740992
local pack, unpack, floor = struct.pack, struct.unpack, math.floor

local function less(ah, al, bh, bl)
  return ah < bh or (ah == bh and al < bl)
end

local function plus(ah, al, bh, bl)
  local low = al + bl
  if low >= WORD then return ah + bh + 1, low - WORD end
  return ah + bh, low
end

-- a - b, but at least zero.
local function minus(ah, al, bh, bl)
  if less(ah, al, bh, bl) then return 0, 0 end
  if al < bl then return ah - bh - 1, al - bl + WORD end
  return ah - bh, al - bl
end

-- The value under a key: false if there is none, nil if it is not a string.
local function read(command, key, first, last)
  local value
  if first then value = redis.pcall(command, key, first, last) else value = redis.pcall(command, key) end
  if type(value) == 'table' then
    if string.find(value.err, 'WRONGTYPE', 1, true) then return nil end
    if first then redis.call(command, key, first, last) else redis.call(command, key) end -- raises the original error
  end
  return value
end

-- The server's time: seconds and microseconds, and the pair of nanoseconds.
local function server_time()
  local time = redis.call('TIME')
  local seconds, micros = tonumber(time[1]), tonumber(time[2])
  local high = seconds * 1953125 -- 10^9 = 1953125 * 2^9
  local low = high % 8388608 * 512 + micros * 1000
  high = floor(high / 8388608)
  if low >= WORD then return high + 1, low - WORD, seconds * 1000000 + micros end
  return high, low, seconds * 1000000 + micros
end
