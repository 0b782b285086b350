-- Script for wrk: post the files that IMAGE_FOLDER/names.txt lists, one after the other, with the API key in API_KEY.
local requests, position = {}, 0

function init(_)
  local folder = os.getenv("IMAGE_FOLDER")
  local headers = {["Content-Type"] = "image/png", ["X-API-Key"] = os.getenv("API_KEY")}
  for name in io.lines(folder .. "/names.txt") do
    local file = assert(io.open(folder .. "/" .. name, "rb"))
    requests[#requests + 1] = wrk.format("POST", nil, headers, file:read("*a"))
    file:close()
  end
end

function request()
  position = position % #requests + 1
  return requests[position]
end

function done(summary, latency, _)
  local failed = summary.errors.connect + summary.errors.read + summary.errors.write
  failed = failed + summary.errors.status + summary.errors.timeout
  io.write(string.format('{"requests": %d, "seconds": %f, "p50_ms": %f, "p99_ms": %f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
