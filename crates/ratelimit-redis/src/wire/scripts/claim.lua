-- Decides slices of claims, each all or nothing. ARGV: a header, then for each slice a header and its claims.
local server, slack = unpack('>BI8', ARGV[1])
local server_high, server_low, micros
if server == 1 then server_high, server_low, micros = server_time() end

local answers, key, arg = {}, 0, 1
while arg < #ARGV do
  local mode, number, now_high, now_low = unpack('>BBI4I4', ARGV[arg + 1])
  if micros then now_high, now_low = server_high, server_low end
  local claims, fit, sound = {}, true, true
  for nth = 1, number do
    local text = ARGV[arg + 1 + nth]
    local kind, c = string.byte(text)
    if kind == 119 then c = window_see(KEYS[key + nth], text, micros)
    elseif kind == 98 then c = bucket_see(KEYS[key + nth], text, now_high, now_low)
    else c = log_see(KEYS[key + nth], text, now_high, now_low) end
    if not c then sound = false break end
    fit = fit and c.fits
    claims[nth] = c
  end
  if sound then
    -- Modes: 0 peeks, 1 charges what fits, 2 charges always.
    local admitted = fit or mode == 2
    local answer = { pack('>BI4I4', admitted and 1 or 0, now_high, now_low) }
    for nth = 1, number do
      local c = claims[nth]
      if admitted and mode > 0 and c.cost > 0 then
        if c.kind == 119 then window_charge(c, slack)
        elseif c.kind == 98 then bucket_charge(c, slack)
        else log_charge(c, slack) end
      elseif c.long and c.value then
        c.reply = redis.call('GET', c.key)
      end
      answer[nth + 1] = c.reply
    end
    answers[#answers + 1] = answer
  else
    answers[#answers + 1] = 'corrupt'
  end
  key, arg = key + number, arg + 1 + number
end
return answers
