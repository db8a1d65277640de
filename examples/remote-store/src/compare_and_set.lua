-- KEYS: the meters. ARGV: for each of them the version that it is thought to have ('' for none), the value to write, and for
-- how many milliseconds ('' to write nothing). A value begins with its version, of eight bytes. Writes if all versions are
-- as thought; gives the values back otherwise. Never shortens a lifetime: claims with other leases may share a log.
local found = {}
local as_thought = true
for i = 1, #KEYS do
  found[i] = redis.call('GET', KEYS[i]) or ''
  as_thought = as_thought and string.sub(found[i], 1, 8) == ARGV[3 * i - 2]
end
if not as_thought then return found end
for i = 1, #KEYS do
  if ARGV[3 * i] ~= '' then
    local lifetime = math.max(tonumber(ARGV[3 * i]), redis.call('PTTL', KEYS[i]))
    redis.call('SET', KEYS[i], ARGV[3 * i - 1], 'PX', lifetime)
  end
end
return {}
