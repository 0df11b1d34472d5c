//! Scripts that a Redis server runs: each is one step for all nodes.

/// Writes records of a map that are newer, and publishes them. Keys: the map. Arguments: the channel, then field, text and
/// message of each record.
pub const MERGE: &str = r"
local written = 0
for i = 2, #ARGV, 3 do
  local present = redis.call('HGET', KEYS[1], ARGV[i])
  if not present or string.sub(present, 1, 40) < string.sub(ARGV[i + 1], 1, 40) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    redis.call('PUBLISH', ARGV[1], ARGV[i + 2])
    written = written + 1
  end
end
return written
";

/// Removes fields of a map that are as given. Keys: the map. Arguments: field and text of each record.
pub const FORGET: &str = r"
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return 0
";

/// Sets a value if the present one is as expected. Keys: the value. Arguments: 1 if one is expected, else 0; the expected
/// one; the new one; its lifetime in milliseconds, or 0.
pub const COMPARE_AND_SET: &str = r"
local present = redis.call('GET', KEYS[1])
if ARGV[1] == '0' then
  if present then return 0 end
elseif present ~= ARGV[2] then
  return 0
end
if ARGV[4] == '0' then
  redis.call('SET', KEYS[1], ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
end
return 1
";

/// Takes a lease, or holds it for longer. Keys: the lease. Arguments: the holder; milliseconds.
pub const HOLD: &str = r"
local present = redis.call('GET', KEYS[1])
if present and present ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
";

/// Gives a lease back. Keys: the lease. Arguments: the holder.
pub const RELEASE: &str = r"
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 0
";

/// Takes permits by the server's clock. Keys: the bucket, whose value is the time in microseconds until which it is paid for.
/// Arguments: microseconds of a permit, and of the burst; permits. Returns the grant, and milliseconds to the next permit.
pub const PERMITS: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local cost, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local paid = tonumber(redis.call('GET', KEYS[1]) or '0')
if paid < now then paid = now end
local room = burst + cost - (paid - now)
local granted = math.max(0, math.min(math.floor(room / cost), wanted))
if granted > 0 then
  paid = paid + granted * cost
  redis.call('SET', KEYS[1], string.format('%.0f', paid), 'PX', math.ceil((paid - now) / 1000) + 1)
end
local pause = 0
if granted < wanted then pause = math.max(1, math.ceil((paid - now - burst) / 1000)) end
return {granted, pause}
";
