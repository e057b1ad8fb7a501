-- receipts: writes to the workspace that an event tells of. They are joined with it (fence 8), or it is not told.
--
-- A step and a receipt each, from ARGV[first] on. False when one was refused, which is noted.
local function join_receipts(run, batch, a, first)
  for i = 0, a.receipts - 1 do
    local args = {workspace = a.run, step = ARGV[first + 2 * i], receipt = ARGV[first + 2 * i + 1]}
    if not is_text(args.step) or not is_text(args.receipt) then return step(call.name, reject('schema')) end
    local d = sandbox.join(run, batch, setmetatable({epoch = a.epoch}, {__index = args}), now_ms(batch))
    if not step('sandbox.join', d, args) then return false end
  end
  return true
end
