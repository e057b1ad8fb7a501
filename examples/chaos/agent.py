"""The candidate: asks for a seat, books it twice over, writes it down, and lets a command read it back."""

from pathlib import Path

from workers.scoring import Score
from workers.tools import call


async def solve(case, run):
    seat = (await run.model.complete(case.input)).text
    await run.workspace.write("seat.txt", seat)
    booked = await run.tools.gather(
        call("book", seat=seat, day=1),
        call("book", seat=seat, day=2),
        call("look", key=case.id),
    )
    await run.note(f"{sum(one.ok for one in booked[:2])} of 2 are booked")
    read = await run.workspace.run(["cat", "seat.txt"])
    confirmed = await run.model.complete(f"Confirm {seat}.\nLAB-ANSWER: {seat}")
    return f"{read.stdout.decode()} {confirmed.text}"


def score(case, sealed):
    seat = (Path(sealed.workspace) / "seat.txt").read_text()
    said = sealed.answer == f"{seat} {seat}"
    return Score("pass" if said and seat == case.target else "fail", value=seat)
