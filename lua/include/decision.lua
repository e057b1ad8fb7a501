-- decision: what an operation answers. A refusal is a value like any other.
local NOTHING = {}
local COMMITTED = {verb = 'commit', answer = NOTHING}
local function commit(answer) return answer and {verb = 'commit', answer = answer} or COMMITTED end
local function duplicate(answer) return {verb = 'duplicate', answer = answer or NOTHING} end
local function reject(reason, answer) return {verb = 'reject', reason = reason, answer = answer or NOTHING} end
local function replay(reason, answer) return {verb = 'replay', reason = reason, answer = answer or NOTHING} end
local function in_doubt(reason, answer) return {verb = 'in_doubt', reason = reason, answer = answer or NOTHING} end
