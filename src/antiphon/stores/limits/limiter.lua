-- The steps of stores/limits/tally.py on Redis, with Redis's time. KEYS[1] is the tenant's prefix, whose hash tag puts all keys into one
-- slot. ARGV: step, the newest of the tenant's times that the caller has seen (0: none) and how long ago that was, generation, tokens,
-- cost, 1|0 (it counts), what is left of the budgets' period, limits; all times in ms. Limits are values in MessagePack: how many subjects beside the
-- tenant, budgets and caps there are, their names; of the tenant and each subject tokens and requests a minute (0: no limit) and how many
-- at once (-1), of each budget the money, of each cap how many messages and the window.
--
-- A tenant is one hash, its fields packed doubles. `clock`: Redis's time, what it was set back, *, the tenant's time, steps, when the first
-- reservation may be dead, fresh fields, where to sweep on, and the tenant's own debts. Subject: debt of tokens in parts, since when, *,
-- debt of requests, since when, running generations. Budget: money, 0, *. Cap: messages, when the first was, *. Generation: tokens, since,
-- *, cost, limits as they came; just three once it is reconciled. * is when the field says nothing any more. Beside the hash, caps are
-- sorted sets, and `open` tells when which reservation was renewed. An answer is 1|0, the clock, and for who asks of limits subjects,
-- budgets and caps, and if refused how long each would wait.
--
-- A step reads once and writes once; its work is Lua's more than Redis's, so what nearly every step does is written out, and functions are
-- made only where something rare is to be done.
local prefix, arguments = KEYS[1], ARGV
local step, generation, packed = arguments[1], arguments[4], arguments[9]
local PARTS, HOLD, HOUR, DAY = 60000, 30000, 3600000, 86400000
local CLOCK, SUBJECT, THREE, HELD = '<ddddddddddddd', '<dddddd', '<ddd', '<dddd'
local call, ceil, pack, unpacked = redis.call, math.ceil, struct.pack, struct.unpack
local TALLY, OPEN, GENERATION = prefix .. 'tally', prefix .. 'open', 'held:' .. generation
local limits = packed and { cmsgpack.unpack(packed) } or { 0, 0, 0, 0, 0, -1 }
local subjects, budgets, caps = limits[1], limits[2], limits[3]
local first_cap, names = subjects + budgets + 1, subjects + budgets + caps
local names_end = names + 3
local wanted = step == 'reconcile' and first_cap + 2 or names_end  -- caps come last, and stay as they are
local read = call('HMGET', TALLY, 'clock', GENERATION, unpack(limits, 4, wanted))

-- The tenant's own time: Redis's, less what its clock was set back since. It never falls and never catches up twice; where Redis's clock
-- is set forth, its callers know better how long ago they were here.
local time = call('TIME')
local raw = time[1] * 1000 + math.floor(time[2] / 1000)
local behind, now, steps, due, lasts, fresh, cursor = 0, raw, 0, 0, 0, 0, 0
local own_debt, own_debt_at, own_asked, own_asked_at, own_running = 0, 0, 0, 0, 0
if read[1] then
  local before
  before, behind, lasts, now, steps, due, fresh, cursor, own_debt, own_debt_at, own_asked, own_asked_at, own_running =
    unpacked(CLOCK, read[1])
  local elapsed = raw - before
  if elapsed < 0 then
    behind = behind - elapsed
  else
    if behind > 0 and elapsed >= behind then
      elapsed = elapsed - behind
      behind = 0
    end
    if elapsed > 1000 and arguments[2] ~= '0' then
      local most = arguments[2] + arguments[3] + 1000 - now
      if elapsed > most then elapsed = most > 0 and most or 0 end
    end
    now = now + elapsed
  end
end
steps = steps + 1

local tokens, cost, counts, left = (arguments[5] or 0) + 0, (arguments[6] or 0) + 0, arguments[7] == '1', (arguments[8] or 0) + 0
local done, records, writes, filled = '1', '', { TALLY, 'clock', '' }, 3
repeat
  local rare, waits, place, known, held = nil, nil, 0, read[2], false
  local had_tokens, since, had_cost, _ = 0, now, 0, nil
  if known then
    if #known > 24 then
      had_tokens, since, _, had_cost = unpacked(HELD, known)
      held = true
    elseif unpacked('<d', known, 17) <= now then
      known = false
    end
  end

  if due > 0 and now >= due then
    rare = 'expire'
  elseif step == 'reserve' and not known then
    local at, found = names_end, {}
    local was_debt, was_debt_at, was_asked, was_asked_at, was_running = own_debt, own_debt_at, own_asked, own_asked_at, own_running
    for i = 0, subjects do
      local by_tokens, by_requests, most = limits[at + 1], limits[at + 2], limits[at + 3]
      local debt, debt_at, kept, asked, asked_at, running, lasting = 0, 0, 0, 0, 0, 0, DAY
      if i == 0 then
        debt, debt_at, asked, asked_at, running = own_debt, own_debt_at, own_asked, own_asked_at, own_running
      elseif read[i + 2] then
        debt, debt_at, kept, asked, asked_at, running = unpacked(SUBJECT, read[i + 2])
        if kept <= now then debt, asked, running = 0, 0, 0 end
      else
        fresh = fresh + 1
      end
      if by_tokens > 0 then
        if debt > 0 then
          debt = debt - (now - debt_at) * by_tokens
          if debt < 0 then debt = 0 end
          local over = debt - (tokens < by_tokens and (by_tokens - tokens) * PARTS or 0)
          if over > 0 then
            waits = waits or {}
            waits[place + 1] = ceil(over / by_tokens)
          end
        end
        debt, debt_at = debt + tokens * PARTS, now
        lasting = 4 * ceil(debt / by_tokens) + DAY  -- 4: it may come to be repaid more slowly
      end
      if by_requests > 0 then
        if asked > 0 then
          asked = asked - (now - asked_at) * by_requests
          if asked < 0 then asked = 0 end
          local over = asked - (by_requests - 1) * PARTS
          if over > 0 then
            waits = waits or {}
            waits[place + 2] = ceil(over / by_requests)
          end
        end
        asked, asked_at = asked + PARTS, now
      end
      if most >= 0 then
        if running >= most then
          waits = waits or {}
          waits[place + 3] = 1000
        end
        running = running + 1
      end
      if i == 0 then
        own_debt, own_debt_at, own_asked, own_asked_at, own_running = debt, debt_at, asked, asked_at, running
      else
        if kept < now + lasting then kept = now + lasting end
        local record = pack(SUBJECT, debt, debt_at, kept, asked, asked_at, running)
        writes[filled + 1], writes[filled + 2], found[i] = limits[i + 3], record, record
        filled = filled + 2
      end
      at, place = at + 3, place + 3
    end
    for i = subjects + 1, subjects + budgets do
      local most, money, kept = limits[at + 1], 0, 0
      if read[i + 2] then
        money, _, kept = unpacked(THREE, read[i + 2])
        if kept <= now then money = 0 end
      else
        fresh = fresh + 1
      end
      at, place = at + 1, place + 1
      if money >= most or money + cost > most then
        waits = waits or {}
        waits[place] = left > 1 and left or 1
      end
      local record = pack(THREE, money + cost, 0, now + left + 40 * DAY)
      writes[filled + 1], writes[filled + 2], found[i] = limits[i + 3], record, record
      filled = filled + 2
    end
    local caps_at = at
    for i = first_cap, names do
      local most, window, messages, first, kept = limits[at + 1], limits[at + 2], 0, now, 0
      if read[i + 2] then
        messages, first, kept = unpacked(THREE, read[i + 2])
        if kept <= now then messages = 0 end
        if messages > 0 and first <= now - window then
          local key = prefix .. limits[i + 3]
          call('ZREMRANGEBYSCORE', key, '-inf', now - window)
          messages, first = call('ZCARD', key), tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] or 0)
          read[i + 2] = pack(THREE, messages, first, kept)
        end
      end
      at, place = at + 2, place + 1
      if messages >= most then
        local key = prefix .. limits[i + 3]
        waits = waits or {}
        waits[place] = most == 0 and window or call('ZREVRANGE', key, most - 1, most - 1, 'WITHSCORES')[2] + window - now
      end
    end

    if waits then
      rare = 'refuse'
      own_debt, own_debt_at, own_asked, own_asked_at, own_running = was_debt, was_debt_at, was_asked, was_asked_at, was_running
    else
      local text = string.format('%.0f', now)
      for i = first_cap, names do
        local key, window, messages, first, kept = prefix .. limits[i + 3], limits[caps_at + 2], 0, now, 0
        if read[i + 2] then messages, first, kept = unpacked(THREE, read[i + 2]) else fresh = fresh + 1 end
        if messages == 0 or kept <= now then
          call('DEL', key)
          messages, first = 0, now
        end
        if call('ZADD', key, text, generation) == 1 then
          messages = messages + 1
        else
          first = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
        end
        if kept < now + window + DAY then
          kept = now + 2 * window + 2 * DAY
          call('PEXPIRE', key, 2 * window + 3 * DAY)
        end
        local record = pack(THREE, messages, first, kept)
        writes[filled + 1], writes[filled + 2], found[i] = limits[i + 3], record, record
        filled, caps_at = filled + 2, caps_at + 2
      end
      writes[filled + 1], writes[filled + 2] = GENERATION, pack(HELD, tokens, now, now + DAY, cost) .. packed
      fresh = fresh + 1
      call('ZADD', OPEN, text, generation)
      if due == 0 or steps % 64 == 0 then call('PEXPIRE', OPEN, '86400000') end
      if due == 0 then due = now + HOLD end
      records = table.concat(found)
    end
  elseif step == 'reserve' or step == 'standings' then
    rare = 'tell'
  elseif step == 'reconcile' then
    if known and not held then
      done = '0'
    else
      if held then call('ZREM', OPEN, generation) else fresh = fresh + 1 end
      if not held or not counts or #known ~= #packed + 32 or not string.find(known, packed, 33, true) then
        rare = 'settle'
      else
        -- As nearly always: only what differs from what was held is booked.
        local more, money_more, at = tokens - had_tokens, cost - had_cost, names_end
        for i = 0, subjects do
          local by_tokens, runs = limits[at + 1], limits[at + 3] >= 0
          local books = more ~= 0 and by_tokens > 0
          if books or runs then
            local debt, debt_at, kept, asked, asked_at, running = own_debt, own_debt_at, now, own_asked, own_asked_at, own_running
            if i > 0 then
              debt, debt_at, kept, asked, asked_at, running = unpacked(SUBJECT, read[i + 2] or pack(SUBJECT, 0, 0, 0, 0, 0, 0))
            end
            if books then
              if debt > 0 then
                debt = debt - (now - debt_at) * by_tokens
                if debt < 0 then debt = 0 end
              end
              debt, debt_at = debt + more * PARTS, now
              if debt < 0 then debt = 0 end
              local lasting = 4 * ceil(debt / by_tokens) + DAY
              if kept < now + lasting then kept = now + lasting end
            end
            if runs and running > 0 then running = running - 1 end
            if i == 0 then
              own_debt, own_debt_at, own_running = debt, debt_at, running
            else
              writes[filled + 1], writes[filled + 2] = limits[i + 3], pack(SUBJECT, debt, debt_at, kept, asked, asked_at, running)
              filled = filled + 2
            end
          end
          at = at + 3
        end
        if money_more ~= 0 then
          for i = subjects + 1, subjects + budgets do
            local money, its_0, kept = unpacked(THREE, read[i + 2] or pack(THREE, 0, 0, now + left + 40 * DAY))
            money = money + money_more
            writes[filled + 1], writes[filled + 2] = limits[i + 3], pack(THREE, money > 0 and money or 0, its_0, kept)
            filled = filled + 2
          end
        end
      end
      writes[filled + 1], writes[filled + 2] = GENERATION, pack(THREE, 0, since, now + HOUR)
      filled = filled + 2
    end
  elseif not held then
    done = '0'
  elseif step == 'renew' then
    call('ZADD', OPEN, now, generation)
    call('PEXPIRE', OPEN, '86400000')
    writes[filled + 1], writes[filled + 2] = GENERATION, known:sub(1, 16) .. pack('<d', now + DAY) .. known:sub(25)
  else
    rare = 'release'
  end
  if not rare then break end

  -- How many messages a cap's sorted set has, and when the first was.
  local function counted(key)
    return call('ZCARD', key), tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] or 0)
  end

  -- Subjects, budgets and caps as nothing is done to them; what says nothing any more is told as zeros.
  local function as_they_are()
    local found, at = {}, names_end + 3 * (1 + subjects) + budgets
    for i = 1, subjects + budgets + caps do
      local record = read[i + 2]
      if not record or unpacked('<d', record, 17) <= now then record = pack(i <= subjects and SUBJECT or THREE, 0, 0, 0, 0, 0, 0) end
      if i > subjects + budgets then
        local messages, first, kept = unpacked(THREE, record)
        if messages > 0 and first <= now - limits[at + 2] then
          call('ZREMRANGEBYSCORE', prefix .. limits[i + 3], '-inf', now - limits[at + 2])
          messages, first = counted(prefix .. limits[i + 3])
          record = pack(THREE, messages, first, kept)
        end
        at = at + 2
      end
      found[i] = record
    end
    return table.concat(found)
  end

  local max = math.max

  local function put(name, record)
    fresh = fresh + call('HSET', TALLY, name, record)
  end

  -- What is owed once more is.
  local function owed(parts, at, per_minute, more)
    if more == 0 then return parts, at end
    return max(0, max(0, parts - (now - at) * per_minute) + more * PARTS), now
  end

  local function owe(name, by_tokens, more_tokens, by_requests, more_requests, more)
    if name == 'tenant' then
      own_debt, own_debt_at = owed(own_debt, own_debt_at, by_tokens, more_tokens)
      own_asked, own_asked_at = owed(own_asked, own_asked_at, by_requests, more_requests)
      own_running = max(0, own_running + more)
      return
    end
    local record, debt, debt_at, kept, asked, asked_at, running = call('HGET', TALLY, name), 0, 0, 0, 0, 0, 0
    if record then debt, debt_at, kept, asked, asked_at, running = unpacked(SUBJECT, record) end
    if kept <= now then debt, asked, running = 0, 0, 0 end
    debt, debt_at = owed(debt, debt_at, by_tokens, more_tokens)
    asked, asked_at = owed(asked, asked_at, by_requests, more_requests)
    local lasting = more_tokens ~= 0 and 4 * ceil(debt / by_tokens) + DAY or DAY
    put(name, pack(SUBJECT, debt, debt_at, max(kept, now + lasting), asked, asked_at, max(0, running + more)))
  end

  local function spend(name, more)
    local record, money, kept = call('HGET', TALLY, name), 0, 0
    if record then
      money, _, kept = unpacked(THREE, record)
    end
    if kept <= now then money = 0 end
    put(name, pack(THREE, max(0, money + more), 0, max(kept, now + left + 40 * DAY)))
  end

  -- Adds to `totals` what is booked under some limits, of each subject and budget; `book` books it.
  local function add(totals, its, more_tokens, more_requests, more, more_cost)
    local its_subjects, its_budgets = its[1], its[2]
    local at = 4 + its_subjects + its_budgets + its[3]
    for i = 0, its_subjects do
      local name = i == 0 and 'tenant' or its[3 + i]
      local total = totals[name] or { 0, 0, 0, 0, 0 }
      if its[at] > 0 then total[1], total[2] = its[at], total[2] + more_tokens end
      if its[at + 1] > 0 then total[3], total[4] = its[at + 1], total[4] + more_requests end
      if its[at + 2] >= 0 then total[5] = total[5] + more end
      totals[name], at = total, at + 3
    end
    for i = 4 + its_subjects, 3 + its_subjects + its_budgets do
      totals[its[i]] = { (totals[its[i]] or { 0 })[1] + more_cost }
    end
  end

  local function book(totals)
    for name, total in pairs(totals) do
      if total[2] then owe(name, unpack(total)) else spend(name, total[1]) end
    end
  end

  -- A message leaves its cap, or comes into it where it was sent `at`.
  local function move(id, name, window, at)
    local key = prefix .. name
    if at then call('ZADD', key, at, id) else call('ZREM', key, id) end
    call('PEXPIRE', key, 2 * window + 3 * DAY)
    local messages, first = counted(key)
    put(name, pack(THREE, messages, first, now + 2 * window + 2 * DAY))
  end

  local function each_cap(its, visit)
    local before = its[1] + its[2]
    for i = 1, its[3] do visit(its[3 + before + i], its[6 + 2 * before + 2 * its[1] + its[3] + 2 * i]) end
  end

  -- Gives back all that a reservation holds.
  local function release(id, record)
    local its_tokens, _, _, its_cost, at = unpacked(HELD, record)
    local its, totals = { cmsgpack.unpack(record:sub(at)) }, {}
    add(totals, its, -its_tokens, -1, -1, -its_cost)
    book(totals)
    each_cap(its, function(name, window) move(id, name, window, nil) end)
    call('HDEL', TALLY, 'held:' .. id)
    call('ZREM', OPEN, id)
  end

  if rare == 'expire' then
    -- Dead servers' reservations come back, some at each step. `due` is no later than the first of them.
    for _, id in ipairs(call('ZRANGEBYSCORE', OPEN, '-inf', now - HOLD, 'LIMIT', '0', '32')) do
      local record = call('HGET', TALLY, 'held:' .. id)
      if record and #record > 24 then release(id, record) else call('ZREM', OPEN, id) end
    end
    local first = call('ZRANGE', OPEN, '0', '0', 'WITHSCORES')[2]
    due = first and first + HOLD or 0
    read = call('HMGET', TALLY, 'clock', GENERATION, unpack(limits, 4, wanted))
  elseif rare == 'tell' then
    records = as_they_are()
  elseif rare == 'refuse' then
    done, writes = '0', { TALLY, 'clock', '' }
    local ms = {}
    for i = 1, place do ms[i] = pack('<d', waits[i] or 0) end
    records = as_they_are() .. table.concat(ms)
  elseif rare == 'settle' then
    local totals, staying = {}, {}
    each_cap(limits, function(name) staying[name] = counts end)
    if held then
      local its = { cmsgpack.unpack(known:sub(33)) }
      add(totals, its, -had_tokens, -1, -1, -had_cost)
      each_cap(its, function(name, window)
        if staying[name] then staying[name] = nil else move(generation, name, window, nil) end
      end)
    end
    add(totals, limits, tokens, counts and 1 or 0, 0, cost)
    each_cap(limits, function(name, window)
      if staying[name] and since > now - window then move(generation, name, window, since) end
    end)
    book(totals)
  else
    release(generation, known)
  end
until rare ~= 'expire'

-- The clock is longer than 64 bytes: Redis looks up the fields of a hash with a value so long, and searches for those of others. Fields
-- that say nothing any more are forgotten about as fast as fresh ones come.
if fresh >= 32 then
  local found = call('HSCAN', TALLY, cursor, 'COUNT', fresh)
  local fields = found[2]
  for i = 2, #fields, 2 do
    if unpacked('<d', fields[i], 17) <= now then call('HDEL', TALLY, fields[i - 1]) end
  end
  cursor, fresh = found[1], 0
end
local renews = lasts < now + 75 * DAY
if renews then lasts = now + 100 * DAY end
local clock =
  pack(CLOCK, raw, behind, lasts, now, steps, due, fresh, cursor, own_debt, own_debt_at, own_asked, own_asked_at, own_running)
writes[3] = clock
call('HSET', unpack(writes))
if renews then call('PEXPIRE', TALLY, '8640000000') end
return done .. clock .. records
