"""The candidate: three bookings in one fan-out, of which the network delivers the second twice."""

import duplicates

from workers.tools import call

duplicates.install()


async def solve(case, run):
    await run.model.complete(case.input)
    seats = [call("book", seat=seat, lab_mischief="duplicate" if seat == "B" else "none") for seat in "ABC"]
    booked = await run.tools.gather(*seats)
    await duplicates.say_again(run.id)
    return str(sum(one.ok for one in booked))
