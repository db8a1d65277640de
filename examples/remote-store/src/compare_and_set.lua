-- KEYS: the meters. ARGV: for each of them the version that is expected ('' for none), the value to write ('' for none), and
-- for how many milliseconds ('' for ever). A value begins with its version, of eight bytes. Writes if all versions are as
-- expected; returns the values otherwise. Never shortens a lifetime: limits with other leases may share a log.
local present = {}
local as_expected = true
for i = 1, #KEYS do
  present[i] = redis.call('GET', KEYS[i]) or ''
  as_expected = as_expected and string.sub(present[i], 1, 8) == ARGV[3 * i - 2]
end
if not as_expected then return present end
for i = 1, #KEYS do
  local value, lifetime = ARGV[3 * i - 1], ARGV[3 * i]
  local left = redis.call('PTTL', KEYS[i]) -- -1 for a key that stays for ever, -2 for none
  if value == '' then
    -- It stays as it is.
  elseif lifetime == '' or left == -1 then
    redis.call('SET', KEYS[i], value)
  else
    redis.call('SET', KEYS[i], value, 'PX', math.max(tonumber(lifetime), left))
  end
end
return {}
