-- The changes of RedisStore. Redis runs a script as one, so no other client sees half of a change.
-- ARGV[1] names the operation; the rest of ARGV is for it.

local P = '{ctxguard}:'

local function drop(member)
  local ns, size = unpack(redis.call('HMGET', P..'record:'..member, 'namespace', 'size'))
  if not ns then return end
  redis.call('DEL', P..'record:'..member)
  redis.call('ZREM', P..'keys:'..ns, member)
  redis.call('ZREM', P..'all', member)
  redis.call('ZREM', P..'expires', member)
  redis.call('DECRBY', P..'bytes', size)
end

local operations = {}

-- remove what has expired, and the oldest records beyond the limit; return how many of each
function operations.sweep(now, limit)
  local over = redis.call('ZRANGEBYSCORE', P..'expires', '-inf', now)
  for _, member in ipairs(over) do drop(member) end
  local evicted = 0
  while limit ~= '' and tonumber(redis.call('GET', P..'bytes') or '0') > tonumber(limit) do
    drop(redis.call('ZRANGE', P..'all', 0, 0)[1])
    evicted = evicted + 1
  end
  return {#over, evicted}
end

-- write a record in place of the one with the expected checksum ('' for none, '*' for any); return whether that was there
function operations.write(member, expected, now, limit, ...)
  local stored = redis.call('HGET', P..'record:'..member, 'checksum') or ''
  if expected ~= '*' and expected ~= stored then return 0 end
  drop(member)
  redis.call('HSET', P..'record:'..member, 'written', now, ...)
  local ns, size, expires = unpack(redis.call('HMGET', P..'record:'..member, 'namespace', 'size', 'expires'))
  local seq = redis.call('INCR', P..'seq')
  redis.call('ZADD', P..'keys:'..ns, seq, member)
  redis.call('ZADD', P..'all', seq, member)
  redis.call('INCRBY', P..'bytes', size)
  if expires ~= '' then redis.call('ZADD', P..'expires', expires, member) end
  operations.sweep(now, limit)
  return 1
end

-- remove a record; return its fields
function operations.drop(member)
  local fields = redis.call('HMGET', P..'record:'..member, 'value', 'expires', 'format', 'checksum')
  drop(member)
  return fields
end

-- remove the records of a namespace; return when each would have expired
function operations.clear(namespace)
  local ends = {}
  for _, member in ipairs(redis.call('ZRANGE', P..'keys:'..namespace, 0, -1)) do
    ends[#ends + 1] = redis.call('HGET', P..'record:'..member, 'expires')
    drop(member)
  end
  return ends
end

-- return the keys of a namespace that have not expired
function operations.keys(namespace, now)
  local found = {}
  for _, member in ipairs(redis.call('ZRANGE', P..'keys:'..namespace, 0, -1)) do
    local key, expires = unpack(redis.call('HMGET', P..'record:'..member, 'key', 'expires'))
    if expires == '' or tonumber(expires) > tonumber(now) then found[#found + 1] = key end
  end
  return found
end

return operations[ARGV[1]](unpack(ARGV, 2))
