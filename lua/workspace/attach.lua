--[[ workspace.attach: give a step its verdict.
WHY      a verdict on yesterday's tree, or on one with a build folder in it, must not stand beside today's.
KEYS     1 run         evb:{live.0}:b:<batch>:run:<run>           HASH
         2 batch       evb:{live.0}:b:<batch>:batch               HASH
         3 history     evb:{live.0}:b:<batch>:history             STREAM
ARGV     1 envelope    msgpack
RETURNS  commit | duplicate | reject schema stale_gen tree_hash already_attached
]]
--#include "workspace/fence.lua"
local a, malformed = begin('workspace.attach', KEYS[3], KEYS[2], {step = 'str', gen = 'int', tree_hash = 'str', verdict = 'str', verdict_schema = 'str'})
if not a then return malformed end
a.schema = a.verdict_schema -- the envelope's own `schema` is its version
local d = workspace.attach(open_row(KEYS[1], workspace.fields(a.step)), open_row(KEYS[2], {'schemas'}), a)
if step('workspace.attach', d, {schema = a.schema}) then return done(d) end
return refused()
