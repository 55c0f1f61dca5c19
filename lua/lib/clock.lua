-- clock: now() is the server's time in whole milliseconds, as text; the only clock a job knows
local function now()
  local time = call('TIME')
  -- %.0f, since Lua's own conversion drops digits of numbers this large
  return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
