--[[ completion.bind: accept the answer to a step's request.
WHY      the answer to a dead generation's prompt must not bind, not even when the live lease presents it.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <model_left> | duplicate <model_left> | replay payload_corrupt <model_left>
         | reject schema after_close stale_lease unknown_request superseded prompt_hash already_bound retries_exhausted
]]
--#include "completion/fence.lua"
local a, malformed = begin('completion.bind', KEYS[3], KEYS[2], {
  run = 'str', step = 'str', lease_id = 'str', gen = 'int', request_id = 'str', prompt_hash = 'str',
  payload_ok = 'bool', digest = 'str',
})
if not a then return malformed end
local run = open_row(KEYS[1], completion.fields(a.step))
return answer(completion.bind(run, open_row(KEYS[2], {'watermark'}), a))
