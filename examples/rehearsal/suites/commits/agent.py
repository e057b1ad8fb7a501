"""The candidate: asks the model for a seat, books it, and says what became of that."""

import deaths

from workers.tools import ToolFailedError

deaths.install()


async def solve(case, run):
    seat = await run.model.complete(case.input)
    misbehaves = deaths.MISCHIEF.get(case.id.partition(".")[0], "none")
    try:
        await run.tools.call("book", seat=seat.text, lab_mischief=misbehaves)
    except ToolFailedError as failed:
        return failed.observation.text
    return "booked"
