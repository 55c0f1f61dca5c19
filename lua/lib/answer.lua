-- answer: what every script that changes something ends with: its answer, and the receipt of it
-- include: request clock

-- split(answer): the items of a receipt's answer, as a plain reply
local function split(answer)
  local items = {}
  for item in string.gmatch(answer, '[^,]+') do
    items[#items + 1] = item
  end
  return items
end

-- finish(answer, time): leaves the receipt, a script's last write. Where a lane is new, those of its
-- neighbors that were unused for an hour go.
local function finish(answer, time)
  call('HSET', RECEIPTS, LANE, NUMBER .. ' ' .. time .. ' ' .. FINGERPRINT .. ' ' .. table.concat(answer, ','))
  for i = 1, neighbors and #neighbors or 0, 2 do
    local used = tonumber(string.match(neighbors[i + 1], '^%d+ (%d+)'))
    if used and used < time - 3600000 then
      call('HDEL', RECEIPTS, neighbors[i])
    end
  end
  return answer
end

-- refuse(answer, probe): ends a script that changes nothing. The probe is a write without effect of
-- the kind that the script would have begun with ('grow' or 'free'): a server that takes none, such
-- as a replica or a full one, answers with an error and not with what it believes.
local function refuse(answer, probe)
  if probe == 'grow' then
    call('HSETNX', META, 'format', '1')
  else
    call('HDEL', META, '')
  end
  return AFTER == '' and answer or finish(answer, now())
end
