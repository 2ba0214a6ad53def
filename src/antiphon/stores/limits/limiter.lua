-- The steps of stores/limits/tally.py on Redis, with Redis's time. KEYS[1] is the tenant's prefix, whose hash tag puts all keys into one
-- slot. ARGV: step, generation, tokens, cost, 1|0 (it counts), what is left of the budgets' period in ms, limits in MessagePack, four
-- values each:
--   T subject per_minute 0 (tokens)   R subject per_minute 0 (requests)   C subject most 0   M key most window_ms   B subject most period
-- A step costs its commands, its tables, its functions and its conversions, so there are few of each. A subject's debts, running
-- generations and money are one value, the tenant's own beside its clock; a reservation keeps its limits as they came. Caps are sorted
-- sets: they may hold many. What nearly every step does is written out where it is done; what is rare has functions, made when needed.
local prefix, step, generation, packed_limits = KEYS[1], ARGV[1], ARGV[2], ARGV[7]
local PARTS, HOLD, DAY, DONE = 60000, 30000, 86400000, '1'
local RECORD = '<dddddI4c0I4c0'  -- tokens owed, at, requests owed, at, kept until, running generations, money; a debt is in parts
local call, ceil, pack, unpacked = redis.call, math.ceil, struct.pack, struct.unpack
local STATE, GENERATION = prefix .. 'state', prefix .. 'gen:' .. generation
local limits = packed_limits and cmsgpack.unpack(packed_limits) or {}
local size = #limits

-- What is read is read once.
local wanted, places, last = { STATE, GENERATION }, {}, 'tenant'
for i = 2, size, 4 do
  local subject = limits[i]
  if subject ~= last and subject ~= 'tenant' and limits[i - 1] ~= 'M' then
    last = subject
    if not places[subject] then
      wanted[#wanted + 1] = prefix .. subject
      places[subject] = #wanted
    end
  end
end
local read = call('MGET', unpack(wanted))
local known, state, records, changed = read[2], read[1], {}, {}

-- The tenant's own time: Redis's, less what its clock was set back since. It never falls, and never catches up twice.
local time = call('TIME')
local raw = time[1] * 1000 + math.floor(time[2] / 1000)
local behind, now, steps, due = 0, raw, 0, 0
if state then
  local before, rest
  before, behind, now, steps, due, rest = unpacked('<ddddd', state)
  records.tenant = { unpacked(RECORD, state, rest) }
  local elapsed = raw - before
  if elapsed < 0 then
    behind = behind - elapsed
  else
    if behind > 0 and elapsed >= behind then
      elapsed = elapsed - behind
      behind = 0
    end
    now = now + elapsed
  end
else
  records.tenant = { 0, 0, 0, 0, 0, '', '' }
end
steps = steps + 1

local function record_of(subject)
  local record = records[subject]
  if not record then
    local place = places[subject]
    local packed = place and read[place]
    if not place then packed = call('GET', prefix .. subject) end
    record = packed and { unpacked(RECORD, packed) } or { 0, 0, 0, 0, 0, '', '' }
    records[subject] = record
  end
  return record
end

-- Writes what has changed, forgets what says nothing any more, and answers.
local function finish(answer)
  for subject, record in pairs(changed) do
    local running, money = record[6], record[7]
    if subject ~= 'tenant' then
      if record[1] == 0 and record[3] == 0 and running == '' and money == '' then
        call('DEL', prefix .. subject)
      else
        local lasts = record[5] - now
        local packed = pack(RECORD, record[1], record[2], record[3], record[4], record[5], #running, running, #money, money)
        call('SET', prefix .. subject, packed, 'PX', lasts > DAY and lasts or '86400000')
      end
    end
  end
  local own = records.tenant
  local running, money = own[6], own[7]
  local packed = pack(
    '<ddddddddddI4c0I4c0', raw, behind, now, steps, due, own[1], own[2], own[3], own[4], own[5], #running, running, #money, money
  )
  call('SET', STATE, packed, 'PX', '3456000000')  -- forty days
  return answer
end

-- A debt as it is now, in the record's `place`.
local function owed_now(record, place, per_minute)
  local parts = record[place]
  if parts > 0 then
    parts = parts - (now - record[place + 1]) * per_minute
    if parts < 0 then return 0 end
  end
  return parts
end

local function owe(subject, record, place, per_minute, amount)
  if amount == 0 then return end
  local parts = owed_now(record, place, per_minute) + amount * PARTS
  if parts < 0 then parts = 0 end
  record[place], record[place + 1] = parts, now
  local kept = now + 4 * ceil(parts / per_minute) + 1000  -- 4: it may come to be repaid more slowly
  if kept > record[5] then record[5] = kept end
  changed[subject] = record
end

-- How many generations run: id, until; one after the other.
local function running_now(running)
  local number, at, until_ms, _ = 0, 1, nil, nil
  while at <= #running do
    _, until_ms, at = unpacked('<sd', running, at)
    if until_ms > now then number = number + 1 end
  end
  return number
end

-- `id` runs until `until_ms`; not at all where that is nil. Others whose time is over go.
local function run_until(subject, record, id, until_ms)
  local running, kept, at = record[6], until_ms and pack('<sd', id, until_ms) or '', 1
  while at <= #running do
    local other, its, rest = unpacked('<sd', running, at)
    if other ~= id and its > now then kept = kept .. running:sub(at, rest - 1) end
    at = rest
  end
  record[6] = kept
  changed[subject] = record
end

-- Money: period, nanos, kept until; one after the other.
local function spent_on(money, period)
  local at = 1
  while at <= #money do
    local its, nanos, kept_until, rest = unpacked('<sdd', money, at)
    if its == period then return nanos, kept_until end
    at = rest
  end
  return 0, 0
end

local function spend(subject, record, period, nanos)
  if nanos == 0 then return end
  local money, kept, at = record[7], '', 1
  local spent, kept_until = spent_on(money, period)
  while at <= #money do
    local its, _, its_end, rest = unpacked('<sdd', money, at)
    if its ~= period and its_end > now then kept = kept .. money:sub(at, rest - 1) end
    at = rest
  end
  kept_until = math.max(kept_until, now + tonumber(ARGV[6] or 0) + 40 * DAY)
  record[7] = kept .. pack('<sdd', period, math.max(0, spent + nanos), kept_until)
  if kept_until > record[5] then record[5] = kept_until end
  changed[subject] = record
end

-- Books `more` of a limit, at once.
local function book(kind, subject, number, period, more)
  if kind == 'B' then
    spend(subject, record_of(subject), period, more)
  else
    owe(subject, record_of(subject), kind == 'T' and 1 or 3, number, more)
  end
end

-- Takes reservation `id` out of all that `its` limits name, but caps in `staying`; `add` is told what that changes in debts and money.
local function withdraw(id, its, its_tokens, its_cost, staying, add)
  for i = 1, #its, 4 do
    local kind, subject = its[i], its[i + 1]
    if kind == 'C' then
      run_until(subject, record_of(subject), id, nil)
    elseif kind == 'M' then
      if not staying[subject] then call('ZREM', prefix .. subject, id) end
    else
      add(kind, subject, its[i + 2], its[i + 3], kind == 'T' and -its_tokens or kind == 'R' and -1 or -its_cost)
    end
  end
end

-- A reservation: tokens, cost, since, and its limits as they came.
local function limits_of(held, at)
  local packed = held:sub(at)
  return packed == packed_limits and limits or cmsgpack.unpack(packed)
end

-- Dead servers' reservations come back, some at each step. `due` is no later than the first of them.
if due > 0 and now >= due then
  local open = prefix .. 'open'
  for _, id in ipairs(call('ZRANGEBYSCORE', open, '-inf', now, 'LIMIT', '0', '32')) do
    local held = call('GET', prefix .. 'gen:' .. id)
    call('ZREM', open, id)
    if held and held ~= DONE then
      local its_tokens, its_cost, _, at = unpacked('<ddd', held)
      withdraw(id, limits_of(held, at), its_tokens, its_cost, {}, book)
      call('DEL', prefix .. 'gen:' .. id)
      if id == generation then known = false end
    end
  end
  due = tonumber(call('ZRANGE', open, '0', '0', 'WITHSCORES')[2] or 0)
end

local function add_message(key, window, at)
  call('ZADD', prefix .. key, at, generation)
  call('PEXPIRE', prefix .. key, window + HOLD)
end

if step == 'reserve' or step == 'standings' then
  local tokens, cost, left = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
  local asks, longest, number = step == 'reserve' and not known, 0, 0
  local messages, first = {}, {}
  for i = 1, size, 4 do
    local kind, subject, most, more, wait = limits[i], limits[i + 1], limits[i + 2], limits[i + 3], 0
    if kind == 'M' then
      -- How many messages are in the window, and when the first of them was.
      local key = prefix .. subject
      local oldest = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
      if oldest and oldest <= now - more then
        call('ZREMRANGEBYSCORE', key, '-inf', now - more)
        oldest = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
      end
      local sent = oldest and call('ZCARD', key) or 0
      messages[i], first[i] = sent, oldest
      if asks and most == 0 then
        wait = more
      elseif asks and sent >= most then
        wait = call('ZREVRANGE', key, most - 1, most - 1, 'WITHSCORES')[2] + more - now
      end
    elseif asks then
      local record = record_of(subject)
      if kind == 'C' then
        if running_now(record[6]) >= most then wait = 1000 end
      elseif kind == 'B' then
        local spent = spent_on(record[7], more)
        if spent >= most or spent + cost > most then wait = left > 1 and left or 1 end
      else
        local amount, place = 1, 3
        if kind == 'T' then amount, place = tokens, 1 end
        local over = owed_now(record, place, most) - (amount < most and (most - amount) * PARTS or 0)
        if over > 0 then wait = ceil(over / most) end
      end
    end
    if wait > longest then longest, number = wait, (i + 3) / 4 end
  end
  local grants = asks and longest == 0
  if grants then
    for i = 1, size, 4 do
      local kind, subject = limits[i], limits[i + 1]
      if kind == 'T' then
        owe(subject, records[subject], 1, limits[i + 2], tokens)
      elseif kind == 'R' then
        owe(subject, records[subject], 3, limits[i + 2], 1)
      elseif kind == 'C' then
        run_until(subject, records[subject], generation, now + HOLD)
      elseif kind == 'M' then
        add_message(subject, limits[i + 3], now)
        messages[i], first[i] = messages[i] + 1, first[i] or now
      else
        spend(subject, records[subject], limits[i + 3], cost)
      end
    end
    call('SET', GENERATION, pack('<ddd', tokens, cost, now) .. packed_limits, 'PX', '86400000')
    call('ZADD', prefix .. 'open', now + HOLD, generation)
    if due == 0 or steps % 64 == 0 then call('PEXPIRE', prefix .. 'open', '86400000') end
    if due == 0 then due = now + HOLD end
  end
  local answer, at = { longest == 0 and 1 or 0, steps, now, number, longest }, 5
  for i = 1, size, 4 do
    local kind, subject, most, used, resets = limits[i], limits[i + 1], limits[i + 2], nil, 0
    if kind == 'M' then
      used = messages[i]
      if first[i] then resets = first[i] + limits[i + 3] - now end
    else
      local record = record_of(subject)
      if kind == 'C' then
        used = running_now(record[6])
      elseif kind == 'B' then
        used, resets = spent_on(record[7], limits[i + 3]), left
      else
        local parts = owed_now(record, kind == 'T' and 1 or 3, most)
        used, resets = ceil(parts / PARTS), ceil(parts / most)
      end
    end
    answer[at + 1], answer[at + 2] = used, resets
    at = at + 2
  end
  return finish(answer)
end

if step == 'reconcile' then
  if known == DONE then return finish({ 0, steps, now }) end
  local tokens, cost, counts = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
  local since, had_tokens, had_cost, before, at = now, 0, 0, {}, nil
  if known then
    had_tokens, had_cost, since, at = unpacked('<ddd', known)
    before = limits_of(known, at)
    call('ZREM', prefix .. 'open', generation)
  end
  if before == limits then
    -- As nearly always: what is charged is under the limits that held it, and only the differences are booked.
    for i = 1, size, 4 do
      local kind, subject = limits[i], limits[i + 1]
      if kind == 'T' then
        owe(subject, record_of(subject), 1, limits[i + 2], tokens - had_tokens)
      elseif kind == 'R' then
        if not counts then owe(subject, record_of(subject), 3, limits[i + 2], -1) end
      elseif kind == 'C' then
        run_until(subject, record_of(subject), generation, nil)
      elseif kind == 'M' then
        if not counts or since <= now - limits[i + 3] then call('ZREM', prefix .. subject, generation) end
      else
        spend(subject, record_of(subject), limits[i + 3], cost - had_cost)
      end
    end
  else
    local staying, served, totals, order = {}, {}, {}, {}
    for i = 1, #before, 4 do
      if before[i] == 'M' and counts and since > now - before[i + 3] then staying[before[i + 1]] = true end
    end
    local function add(kind, subject, number, period, more)
      local key = kind .. subject .. (kind == 'B' and period or '')
      local total = totals[key]
      if total then
        total[3], total[5] = number, total[5] + more
      else
        totals[key] = { kind, subject, number, period, more }
        order[#order + 1] = key
      end
    end
    for i = 1, size, 4 do
      if limits[i] == 'M' then served[limits[i + 1]] = true end
    end
    for key in pairs(staying) do staying[key] = served[key] end
    withdraw(generation, before, had_tokens, had_cost, staying, add)
    for i = 1, size, 4 do
      local kind, subject, window = limits[i], limits[i + 1], limits[i + 3]
      if kind == 'M' then
        if counts and since > now - window and not staying[subject] then add_message(subject, window, since) end
      elseif kind ~= 'C' then
        add(kind, subject, limits[i + 2], window, kind == 'T' and tokens or kind == 'R' and (counts and 1 or 0) or cost)
      end
    end
    for _, key in ipairs(order) do book(unpack(totals[key])) end
  end
  call('SET', GENERATION, DONE, 'PX', '3600000')
  return finish({ 1, steps, now })
end

if not known or known == DONE then return finish({ 0, steps, now }) end
local its_tokens, its_cost, _, at = unpacked('<ddd', known)
local its = limits_of(known, at)
if step == 'renew' then
  call('ZADD', prefix .. 'open', now + HOLD, generation)
  call('PEXPIRE', prefix .. 'open', '86400000')
  call('PEXPIRE', GENERATION, '86400000')
  for i = 1, #its, 4 do
    if its[i] == 'C' then run_until(its[i + 1], record_of(its[i + 1]), generation, now + HOLD) end
  end
else
  withdraw(generation, its, its_tokens, its_cost, {}, book)
  call('ZREM', prefix .. 'open', generation)
  call('DEL', GENERATION)
end
return finish({ 1, steps, now })
