--[[ join.admit: open the window of a case, and hold its tokens.
WHY      a coordinator that restarts must find the window that it opened, and must not open a closed one again.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack   2 expected   JSON list of texts, sorted, each once
RETURNS  commit <window remaining> | duplicate <the same>
         | reject schema case_closed expected_mismatch over_budget
]]
--#include "join/fence.lua"
local a, malformed = begin('join.admit', KEYS[3], KEYS[2], {case = 'str', window = 'str', window_cost = 'int'})
if not a then return malformed end
a.expected = ARGV[2]
return answer(join.admit(open_row(KEYS[1], join.fields(a.case)), open_row(KEYS[2], join.batch_fields), a))
