--[[ judge.commit: sign a score.
WHY      the critic that was bound signs, not the one that a pool happened to route to.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit <replays> | duplicate <replays>
         | reject schema unbound stale_epoch judge_mismatch candidate_mismatch already_scored
         | replay judge_mismatch candidate_mismatch | in_doubt judge_mismatch candidate_mismatch
]]
--#include "judge/fence.lua"
local a, malformed = begin('judge.commit', KEYS[3], KEYS[2], {run = 'str', epoch = 'int1', score_digest = 'str'})
if not a then return malformed end
if not (is_text(a.observed_candidate) and is_text(a.observed_judge)) then return refused(reject('unbound')) end
return answer(judge.commit(open_row(KEYS[1]), open_row(KEYS[2], judge.fields), a))
