-- seek: where in a list or a sorted set a job is; both are in the order of the sequence, a set where scores
-- are equal
-- include: keys

-- seek(low, high, sequence, at) -> the first place in low .. high - 1 whose job comes later, else high
local function seek(low, high, sequence, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(string.sub(at(middle), 1, 13)) > sequence then high = middle else low = middle + 1 end
  end
  return low
end

-- listed_until(list, sequence): how many members of a list are not later
local function listed_until(list, sequence)
  return seek(0, call('LLEN', list), sequence, function(at) return call('LINDEX', list, at) end)
end

-- sorted_until(key, score, sequence): how many members of a sorted set are not later
local function sorted_until(key, score, sequence)
  local low, high = call('ZCOUNT', key, '-inf', '(' .. score), call('ZCOUNT', key, '-inf', score)
  return seek(low, high, sequence, function(at) return call('ZRANGE', key, at, at)[1] end)
end
