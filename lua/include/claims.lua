-- claims: what the claim of a run and the claim of its score have in common.
--
-- An entry is given to somebody at least once, and says nothing: whether it is current, the run's row decides.
--#include "include/run.lua"

-- A run of which nobody has been the holder has nothing that a holder leaves: that is not asked for.
local function open_claimed(key, of_run, attempts, of_holders)
  local run = open_row(key, of_run)
  if run.data[attempts] then read_more(run, of_holders) else lacks(run, of_holders) end
  return run
end

local function claims_ahead(packed, leases, stream, group)
  local envelopes = envelopes_of(packed)
  fields_ahead(leases, values_of(envelopes, 'lease_id'))
  owners_ahead(stream, group, envelopes)
end

-- Why an entry is not claimed, nil where it may be; `is_open`: somebody is to have the run, by its state and its batch's.
-- What nobody has to be given any more is acknowledged, for its owner.
local function unclaimable(run, leases, stream, group, a, is_open)
  -- A late copy of an old claim: the entry may be its successor's by now, so it acknowledges nothing.
  if leases.data[a.lease_id] then return reject('lease_reused') end
  if not owns(stream, group, a.entry, a.consumer) then return reject('not_owner') end
  if not is_open then
    acknowledge(stream, group, a.entry)
    return reject('ended')
  end
  if run.data.entry ~= a.entry then
    acknowledge(stream, group, a.entry)
    return reject('duplicate_entry')
  end
end
