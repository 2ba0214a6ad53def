-- The steps of stores/limits/tally.py on Redis, with Redis's time. KEYS[1] is the tenant's prefix, whose hash tag puts all keys
-- into one slot. ARGV: the step, then its arguments; limits come four at a time: kind, key, most or rate, one number more.
--   R key per_minute 1|0 (tokens, requests)   C key most 0   M key most window_ms   B key most_nanos left_ms
local prefix, step, generation = KEYS[1], ARGV[1], ARGV[2]
local PARTS, HOLD, REMEMBERED, ASK_AGAIN, AT_ONCE, DAY = 60000, 30000, 3600000, 1000, 32, 86400000
local call, ceil, max, min = redis.call, math.ceil, math.max, math.min
local OPEN, HELD, DONE, CLOCK = prefix .. 'open', prefix .. 'held:', prefix .. 'done:', prefix .. 'clock'

local limits = {}
for i = step == 'reconcile' and 6 or step == 'reserve' and 5 or 3, #ARGV, 4 do
  limits[#limits + 1] = { ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]) }
end

-- What is read is read once: the clock, and the debts and money that the limits name.
local values, wanted, named = {}, { CLOCK }, {}
for _, limit in ipairs(limits) do
  if limit[1] == 'R' or limit[1] == 'B' then
    wanted[#wanted + 1] = prefix .. limit[2]
    named[#named + 1] = limit[2]
  end
end
local read = call('MGET', unpack(wanted))
for i, key in ipairs(named) do values[key] = read[i + 1] end

local function value_of(key)
  local value = values[key]
  if value == nil then
    value = call('GET', prefix .. key)
    values[key] = value
  end
  return value
end

-- The tenant's own time: Redis's, less what its clock was set back since. It never falls, and never catches up twice.
local function tick()
  local time = call('TIME')
  local raw = time[1] * 1000 + math.floor(time[2] / 1000)
  local packed = read[1]
  local now, behind, steps = raw, 0, 0
  if packed then
    local last
    last, behind, now, steps = struct.unpack('<dddd', packed)
    local elapsed = raw - last
    if elapsed < 0 then
      behind = behind - elapsed
    else
      if behind > 0 and elapsed >= behind then
        elapsed = elapsed - behind
        behind = 0
      end
      now = now + elapsed
    end
  end
  call('SET', CLOCK, struct.pack('<dddd', raw, behind, now, steps + 1), 'PX', 40 * DAY)
  return now, steps + 1
end

local now, steps = tick()

local function owed_now(key, per_minute)
  local packed = value_of(key)
  if not packed then return 0 end
  local parts, at = struct.unpack('<dd', packed)
  return max(0, parts - (now - at) * per_minute)
end

local function owe(key, per_minute, parts)
  if parts > 0 then
    local packed = struct.pack('<dd', parts, now)
    values[key] = packed
    call('SET', prefix .. key, packed, 'PX', 4 * ceil(parts / per_minute) + 1000)  -- 4: it may come to be repaid more slowly
  elseif value_of(key) then
    values[key] = false
    call('DEL', prefix .. key)
  end
end

local function spent_on(key)
  return tonumber(value_of(key) or '0')
end

local function spend(key, nanos, left_ms)
  local spent = string.format('%.0f', max(0, spent_on(key) + nanos))
  values[key] = spent
  call('SET', prefix .. key, spent, 'PX', left_ms + 40 * DAY)
end

local function took(limit, tokens)
  if limit[4] == 1 then return tokens end
  return 1
end

-- Takes a reservation away. What that changes in debts goes into `owed`, in the order of `keys`; caps in `staying` stay.
local function withdraw(id, held, owed, keys, money, staying)
  for _, limit in ipairs(held[4]) do
    local kind, key = limit[1], limit[2]
    if kind == 'R' then
      owed[key] = { limit[3], -took(limit, held[1]) }
      keys[#keys + 1] = key
    elseif kind == 'C' or kind == 'M' then
      if not (staying and staying[key]) then call('ZREM', prefix .. key, id) end
    else
      money[#money + 1] = { key, -held[2], limit[4] }
    end
  end
end

local function book(owed, keys, money)
  for _, key in ipairs(keys) do
    local entry = owed[key]
    if entry[2] ~= 0 then owe(key, entry[1], owed_now(key, entry[1]) + entry[2] * PARTS) end
  end
  for _, entry in ipairs(money) do
    if entry[2] ~= 0 then spend(entry[1], entry[2], entry[3]) end
  end
end

local function take(id)
  local packed = call('GETDEL', HELD .. id)
  if not packed then
    call('ZREM', OPEN, id)
    return nil
  end
  call('ZREM', OPEN, id)
  return cmsgpack.unpack(packed)
end

local function give_back(id, held)
  local owed, keys, money = {}, {}, {}
  withdraw(id, held, owed, keys, money)
  book(owed, keys, money)
end

local first = call('ZRANGE', OPEN, 0, 0, 'WITHSCORES')
if first[2] and tonumber(first[2]) <= now then
  for _, id in ipairs(call('ZRANGEBYSCORE', OPEN, '-inf', now, 'LIMIT', 0, AT_ONCE)) do
    local held = take(id)
    if held then give_back(id, held) end
  end
end

local function standing(limit, reply)
  local kind, key = limit[1], limit[2]
  local used, resets = 0, 0
  if kind == 'R' then
    local parts = owed_now(key, limit[3])
    used, resets = ceil(parts / PARTS), ceil(parts / limit[3])
  elseif kind == 'C' then
    used = call('ZCOUNT', prefix .. key, '(' .. now, '+inf')
  elseif kind == 'M' then
    local since = '(' .. (now - limit[4])
    used = call('ZCOUNT', prefix .. key, since, '+inf')
    if used > 0 then
      resets = call('ZRANGEBYSCORE', prefix .. key, since, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] + limit[4] - now
    end
  else
    used, resets = spent_on(key), limit[4]
  end
  reply[#reply + 1] = used
  reply[#reply + 1] = resets
end

local function answer(granted, number, wait)
  local reply = { granted, steps, now, number or 0, wait or 0 }
  for _, limit in ipairs(limits) do standing(limit, reply) end
  return reply
end

local function wait_for(limit, tokens, cost)
  local kind, key, most = limit[1], limit[2], limit[3]
  if kind == 'R' then
    local over = owed_now(key, most) - (most - min(took(limit, tokens), most)) * PARTS
    if over > 0 then return ceil(over / most) end
  elseif kind == 'C' then
    if call('ZCOUNT', prefix .. key, '(' .. now, '+inf') >= most then return ASK_AGAIN end
  elseif kind == 'M' then
    if most == 0 then return limit[4] end
    if call('ZCOUNT', prefix .. key, '(' .. (now - limit[4]), '+inf') >= most then
      return call('ZREVRANGE', prefix .. key, most - 1, most - 1, 'WITHSCORES')[2] + limit[4] - now
    end
  else
    local spent = spent_on(key)
    if spent >= most or spent + cost > most then return max(1, limit[4]) end
  end
  return 0
end

local function put(limit, tokens, cost)
  local kind, key = limit[1], limit[2]
  if kind == 'R' then
    owe(key, limit[3], owed_now(key, limit[3]) + took(limit, tokens) * PARTS)
  elseif kind == 'C' then
    call('ZADD', prefix .. key, now + HOLD, generation)
    call('PEXPIRE', prefix .. key, DAY)
  elseif kind == 'M' then
    call('ZREMRANGEBYSCORE', prefix .. key, '-inf', now - limit[4])
    call('ZADD', prefix .. key, now, generation)
    call('PEXPIRE', prefix .. key, limit[4] + HOLD)
  elseif cost > 0 then
    spend(key, cost, limit[4])
  end
end

if step == 'reserve' then
  local tokens, cost = tonumber(ARGV[3]), tonumber(ARGV[4])
  if call('EXISTS', HELD .. generation, DONE .. generation) > 0 then return answer(1) end
  local longest, number = 0, 0
  for i, limit in ipairs(limits) do
    local wait = wait_for(limit, tokens, cost)
    if wait > longest then longest, number = wait, i end
  end
  if longest > 0 then return answer(0, number, longest) end
  for _, limit in ipairs(limits) do put(limit, tokens, cost) end
  call('SET', HELD .. generation, cmsgpack.pack({ tokens, cost, now, limits }), 'PX', DAY)
  call('ZADD', OPEN, now + HOLD, generation)
  if not first[2] or steps % 64 == 0 then call('PEXPIRE', OPEN, DAY) end
  return answer(1)
end

if step == 'reconcile' then
  local tokens, cost, counts = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
  if call('EXISTS', DONE .. generation) > 0 then return { 0, steps, now } end
  local held = take(generation)
  local since, owed, keys, money = now, {}, {}, {}
  if held then
    since = held[3]
    local staying, had = {}, {}
    for _, limit in ipairs(held[4]) do had[limit[2]] = true end
    for _, limit in ipairs(limits) do
      if limit[1] == 'M' and counts and had[limit[2]] and since > now - limit[4] then staying[limit[2]] = true end
    end
    withdraw(generation, held, owed, keys, money, staying)
    held.staying = staying
  end
  for _, limit in ipairs(limits) do
    local kind, key = limit[1], limit[2]
    if kind == 'R' then
      local amount = took(limit, tokens)
      if limit[4] ~= 1 and not counts then amount = 0 end
      local entry = owed[key]
      if entry then
        entry[1], entry[2] = limit[3], entry[2] + amount
      else
        owed[key] = { limit[3], amount }
        keys[#keys + 1] = key
      end
    elseif kind == 'M' then
      if counts and since > now - limit[4] and not (held and held.staying[key]) then
        call('ZADD', prefix .. key, since, generation)
        call('PEXPIRE', prefix .. key, limit[4] + HOLD)
      end
    elseif kind == 'B' then
      local same
      for _, entry in ipairs(money) do
        if entry[1] == key then same = entry end
      end
      if same then
        same[2], same[3] = same[2] + cost, limit[4]
      else
        money[#money + 1] = { key, cost, limit[4] }
      end
    end
  end
  book(owed, keys, money)
  call('SET', DONE .. generation, '1', 'PX', REMEMBERED)
  return { 1, steps, now }
end

if step == 'renew' then
  local packed = call('GET', HELD .. generation)
  if not packed then return { 0, steps, now } end
  call('ZADD', OPEN, now + HOLD, generation)
  for _, limit in ipairs(cmsgpack.unpack(packed)[4]) do
    if limit[1] == 'C' then
      call('ZADD', prefix .. limit[2], now + HOLD, generation)
      call('PEXPIRE', prefix .. limit[2], DAY)
    end
  end
  return { 1, steps, now }
end

if step == 'release' then
  local held = take(generation)
  if not held then return { 0, steps, now } end
  give_back(generation, held)
  return { 1, steps, now }
end

return answer(1)
