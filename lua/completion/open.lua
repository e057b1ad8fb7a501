--[[ completion.open: announce a request before its prompt leaves.
WHY      an answer may bind only to a prompt that left under the very lease that is live when it comes.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 requests    evb:{live.0}:b:<batch>:requests            HASH
         4 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema stale_lease request_reused already_bound retries_exhausted
]]
--#include "completion/fence.lua"
local a, malformed = begin('completion.open', KEYS[4], KEYS[2], {
  run = 'str', step = 'str', lease_id = 'str', gen = 'int', request_id = 'str', prompt_hash = 'str',
})
if not a then return malformed end
local run = open_row(KEYS[1], completion.fields(a.step))
local requests = open_row(KEYS[3], {a.request_id})
return answer(completion.open(run, requests, a))
