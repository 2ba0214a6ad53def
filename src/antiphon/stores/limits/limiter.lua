-- The steps of stores/limits/tally.py on Redis, with Redis's time. KEYS[1] is the tenant's prefix, whose hash tag puts all keys into one
-- slot. ARGV: step, generation, tokens, cost, 1|0 (it counts), what is left of the budgets' period in ms, limits in MessagePack, four
-- values each:
--   T subject per_minute 0 (tokens)   R subject per_minute 0 (requests)   C subject most 0   M key most window_ms   B subject most period
-- A step costs its commands, its tables and its conversions, so there are few. A subject's debts, running generations and money are one
-- value, the tenant's own beside its clock; a reservation keeps its limits as they came. Caps are sorted sets: they may hold many.
local prefix, step, generation, packed_limits = KEYS[1], ARGV[1], ARGV[2], ARGV[7]
local tokens, cost, counts, left = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6] or 0)
local PARTS, HOLD, ASK_AGAIN, DAY = 60000, 30000, 1000, 86400000
local REMEMBERED, A_DAY, FORTY_DAYS, AT_ONCE, DONE = '3600000', '86400000', '3456000000', '32', '1'
local TOKENS, REQUESTS, UNTIL, RUNNING, MONEY = 1, 3, 5, 6, 7  -- places in a record; a debt is two numbers: parts, at
local call, ceil, max, min, sub, format = redis.call, math.ceil, math.max, math.min, string.sub, string.format
local pack, unpacked = struct.pack, struct.unpack
local OPEN, STATE, GENERATION = prefix .. 'open', prefix .. 'state', prefix .. 'gen:' .. generation
local limits = packed_limits and cmsgpack.unpack(packed_limits) or {}

local function record_from(packed, at)
  if not packed then return { 0, 0, 0, 0, 0, '', '' } end
  local tokens_owed, tokens_at, requests_owed, requests_at, until_ms, size, rest = unpacked('<dddddI4', packed, at)
  return { tokens_owed, tokens_at, requests_owed, requests_at, until_ms, sub(packed, rest, rest + size - 1), sub(packed, rest + size) }
end

local function packed_from(record)
  return pack('<dddddI4', record[1], record[2], record[3], record[4], record[5], #record[6]) .. record[6] .. record[7]
end

-- What is read is read once.
local wanted, places = { STATE, GENERATION }, {}
for i = 1, #limits, 4 do
  local subject = limits[i + 1]
  if subject ~= 'tenant' and limits[i] ~= 'M' and not places[subject] then
    wanted[#wanted + 1] = prefix .. subject
    places[subject] = #wanted
  end
end
local read = call('MGET', unpack(wanted))
local known, records, changed = read[2], {}, {}
for subject, place in pairs(places) do records[subject] = record_from(read[place], 1) end

-- The tenant's own time: Redis's, less what its clock was set back since. It never falls, and never catches up twice.
local time = call('TIME')
local raw = time[1] * 1000 + math.floor(time[2] / 1000)
local behind, now, steps, due = 0, raw, 0, 0
if read[1] then
  local last, rest
  last, behind, now, steps, due, rest = unpacked('<ddddd', read[1])
  records.tenant = record_from(read[1], rest)
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
else
  records.tenant = record_from(nil)
end
steps = steps + 1

local function record_of(subject)
  local record = records[subject]
  if not record then
    record = record_from(call('GET', prefix .. subject), 1)
    records[subject] = record
  end
  return record
end

-- Writes what has changed, forgets what says nothing any more, and answers.
local function finish(...)
  for subject in pairs(changed) do
    local record = records[subject]
    if subject == 'tenant' then
      -- it lies in the state
    elseif record[TOKENS] == 0 and record[REQUESTS] == 0 and record[RUNNING] == '' and record[MONEY] == '' then
      call('DEL', prefix .. subject)
    else
      local lasts = record[UNTIL] - now
      call('SET', prefix .. subject, packed_from(record), 'PX', lasts > DAY and format('%.0f', lasts) or A_DAY)
    end
  end
  call('SET', STATE, pack('<ddddd', raw, behind, now, steps, due) .. packed_from(records.tenant), 'PX', FORTY_DAYS)
  return cmsgpack.pack({ ... })
end

local function owed_now(record, place, per_minute)
  local parts = record[place]
  if parts == 0 then return 0 end
  return max(0, parts - (now - record[place + 1]) * per_minute)
end

local function owe(subject, place, per_minute, amount)
  if amount == 0 then return end
  local record = record_of(subject)
  local parts = max(0, owed_now(record, place, per_minute) + amount * PARTS)
  record[place], record[place + 1] = parts, now
  record[UNTIL] = max(record[UNTIL], now + 4 * ceil(parts / per_minute) + 1000)  -- 4: it may come to be repaid more slowly
  changed[subject] = true
end

-- Running generations: id, until; one after the other.
local function running_now(record)
  local running, number, at, until_ms, _ = record[RUNNING], 0, 1, nil, nil
  while at <= #running do
    _, until_ms, at = unpacked('<sd', running, at)
    if until_ms > now then number = number + 1 end
  end
  return number
end

-- `id` runs until `until_ms`; not at all where that is nil. Others whose time is over go.
local function run_until(subject, id, until_ms)
  local record = record_of(subject)
  local running, kept, at = record[RUNNING], '', 1
  while at <= #running do
    local other, its, rest = unpacked('<sd', running, at)
    if other ~= id and its > now then kept = kept .. sub(running, at, rest - 1) end
    at = rest
  end
  record[RUNNING] = until_ms and kept .. pack('<sd', id, until_ms) or kept
  changed[subject] = true
end

-- Money: period, nanos, kept until; one after the other.
local function spent_on(record, period)
  local money, at = record[MONEY], 1
  while at <= #money do
    local its, nanos, kept_until, rest = unpacked('<sdd', money, at)
    if its == period then return nanos, kept_until end
    at = rest
  end
  return 0, 0
end

local function spend(subject, period, nanos)
  if nanos == 0 then return end
  local record = record_of(subject)
  local spent, kept_until = spent_on(record, period)
  local money, kept, at = record[MONEY], '', 1
  while at <= #money do
    local its, _, its_end, rest = unpacked('<sdd', money, at)
    if its ~= period and its_end > now then kept = kept .. sub(money, at, rest - 1) end
    at = rest
  end
  kept_until = max(kept_until, now + left + 40 * DAY)
  record[MONEY] = kept .. pack('<sdd', period, max(0, spent + nanos), kept_until)
  record[UNTIL] = max(record[UNTIL], kept_until)
  changed[subject] = true
end

-- Books `more` of a limit, at once.
local function book(kind, subject, number, period, more)
  if kind == 'B' then
    spend(subject, period, more)
  else
    owe(subject, kind == 'T' and TOKENS or REQUESTS, number, more)
  end
end

-- Takes reservation `id` out of all that `its` limits name, but caps in `staying`; `add` is told what that changes in debts and money.
local function withdraw(id, its, its_tokens, its_cost, staying, add)
  for i = 1, #its, 4 do
    local kind, subject = its[i], its[i + 1]
    if kind == 'C' then
      run_until(subject, id, nil)
    elseif kind == 'M' then
      if not staying[subject] then call('ZREM', prefix .. subject, id) end
    else
      add(kind, subject, its[i + 2], its[i + 3], kind == 'T' and -its_tokens or kind == 'R' and -1 or -its_cost)
    end
  end
end

-- A reservation: tokens, cost, since, and its limits as they came.
local function limits_of(held, at)
  local packed = sub(held, at)
  return packed == packed_limits and limits or cmsgpack.unpack(packed)
end

-- Dead servers' reservations come back, some at each step. `due` is no later than the first of them.
if due > 0 and now >= due then
  for _, id in ipairs(call('ZRANGEBYSCORE', OPEN, '-inf', format('%.0f', now), 'LIMIT', '0', AT_ONCE)) do
    local held = call('GET', prefix .. 'gen:' .. id)
    call('ZREM', OPEN, id)
    if held and held ~= DONE then
      local its_tokens, its_cost, _, at = unpacked('<ddd', held)
      withdraw(id, limits_of(held, at), its_tokens, its_cost, {}, book)
      call('DEL', prefix .. 'gen:' .. id)
      if id == generation then known = false end
    end
  end
  due = tonumber(call('ZRANGE', OPEN, '0', '0', 'WITHSCORES')[2] or 0)
end

local function add_message(key, window, at)
  call('ZADD', prefix .. key, format('%.0f', at), generation)
  call('PEXPIRE', prefix .. key, format('%.0f', window + HOLD))
end

-- How many messages are in a cap's window, and when the first of them was.
local function messages_of(key, window)
  local first = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
  if first and first <= now - window then
    call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', now - window))
    first = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
  end
  return first and call('ZCARD', key) or 0, first
end

-- How long the limit keeps the caller waiting, who sees `messages` in a cap's window; 0: not at all.
local function wait_for(kind, subject, most, more, messages)
  if kind == 'M' then
    if most == 0 then return more end
    if messages < most then return 0 end
    return call('ZREVRANGE', prefix .. subject, most - 1, most - 1, 'WITHSCORES')[2] + more - now
  end
  local record = record_of(subject)
  if kind == 'C' then return running_now(record) >= most and ASK_AGAIN or 0 end
  if kind == 'B' then
    local spent = spent_on(record, more)
    return (spent >= most or spent + cost > most) and max(1, left) or 0
  end
  local place, amount = TOKENS, tokens
  if kind == 'R' then place, amount = REQUESTS, 1 end
  local over = owed_now(record, place, most) - (most - min(amount, most)) * PARTS
  return over > 0 and ceil(over / most) or 0
end

-- What is used of the limit, and when it has come back.
local function standing(kind, subject, most, more, messages, first)
  if kind == 'M' then return messages, first and first + more - now or 0 end
  local record = record_of(subject)
  if kind == 'C' then return running_now(record), 0 end
  if kind == 'B' then
    local spent = spent_on(record, more)
    return spent, left
  end
  local parts = owed_now(record, kind == 'T' and TOKENS or REQUESTS, most)
  return ceil(parts / PARTS), ceil(parts / most)
end

if step == 'reserve' or step == 'standings' then
  local messages, first, longest, number = {}, {}, 0, 0
  local asks = step == 'reserve' and not known
  for i = 1, #limits, 4 do
    local kind, subject, most, more = limits[i], limits[i + 1], limits[i + 2], limits[i + 3]
    if kind == 'M' then messages[i], first[i] = messages_of(prefix .. subject, more) end
    if asks then
      local wait = wait_for(kind, subject, most, more, messages[i])
      if wait > longest then longest, number = wait, (i + 3) / 4 end
    end
  end
  if asks and longest == 0 then
    for i = 1, #limits, 4 do
      local kind, subject = limits[i], limits[i + 1]
      if kind == 'C' then
        run_until(subject, generation, now + HOLD)
      elseif kind == 'M' then
        add_message(subject, limits[i + 3], now)
        messages[i], first[i] = messages[i] + 1, first[i] or now
      else
        book(kind, subject, limits[i + 2], limits[i + 3], kind == 'T' and tokens or kind == 'R' and 1 or cost)
      end
    end
    call('SET', GENERATION, pack('<ddd', tokens, cost, now) .. packed_limits, 'PX', A_DAY)
    call('ZADD', OPEN, format('%.0f', now + HOLD), generation)
    if due == 0 or steps % 64 == 0 then call('PEXPIRE', OPEN, A_DAY) end
    if due == 0 then due = now + HOLD end
  end
  local answer = { longest == 0 and 1 or 0, steps, now, number, longest }
  for i = 1, #limits, 4 do
    local used, resets = standing(limits[i], limits[i + 1], limits[i + 2], limits[i + 3], messages[i], first[i])
    answer[#answer + 1] = used
    answer[#answer + 1] = resets
  end
  return finish(unpack(answer))
end

if step == 'reconcile' then
  if known == DONE then return finish(0, steps, now) end
  local since, staying, had_tokens, had_cost, before, at = now, {}, 0, 0, {}, nil
  if known then
    had_tokens, had_cost, since, at = unpacked('<ddd', known)
    before = limits_of(known, at)
    for i = 1, #before, 4 do
      if before[i] == 'M' and counts and since > now - before[i + 3] then staying[before[i + 1]] = true end
    end
    call('ZREM', OPEN, generation)
  end
  if before == limits then
    -- As nearly always: what is charged is under the limits that held it, and only the differences are booked.
    for i = 1, #limits, 4 do
      local kind, subject = limits[i], limits[i + 1]
      if kind == 'C' then
        run_until(subject, generation, nil)
      elseif kind == 'M' then
        if not staying[subject] then call('ZREM', prefix .. subject, generation) end
      else
        local more = kind == 'T' and tokens - had_tokens or kind == 'R' and (counts and 0 or -1) or cost - had_cost
        book(kind, subject, limits[i + 2], limits[i + 3], more)
      end
    end
  else
    local served, totals, order = {}, {}, {}
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
    for i = 1, #limits, 4 do
      if limits[i] == 'M' then served[limits[i + 1]] = true end
    end
    for key in pairs(staying) do staying[key] = served[key] end
    withdraw(generation, before, had_tokens, had_cost, staying, add)
    for i = 1, #limits, 4 do
      local kind, subject, window = limits[i], limits[i + 1], limits[i + 3]
      if kind == 'M' then
        if counts and since > now - window and not staying[subject] then add_message(subject, window, since) end
      elseif kind ~= 'C' then
        add(kind, subject, limits[i + 2], window, kind == 'T' and tokens or kind == 'R' and (counts and 1 or 0) or cost)
      end
    end
    for _, key in ipairs(order) do book(unpack(totals[key])) end
  end
  call('SET', GENERATION, DONE, 'PX', REMEMBERED)
  return finish(1, steps, now)
end

if not known or known == DONE then return finish(0, steps, now) end
local its_tokens, its_cost, _, at = unpacked('<ddd', known)
local its = limits_of(known, at)
if step == 'renew' then
  call('ZADD', OPEN, format('%.0f', now + HOLD), generation)
  call('PEXPIRE', OPEN, A_DAY)
  call('PEXPIRE', GENERATION, A_DAY)
  for i = 1, #its, 4 do
    if its[i] == 'C' then run_until(its[i + 1], generation, now + HOLD) end
  end
else
  withdraw(generation, its, its_tokens, its_cost, {}, book)
  call('ZREM', OPEN, generation)
  call('DEL', GENERATION)
end
return finish(1, steps, now)
