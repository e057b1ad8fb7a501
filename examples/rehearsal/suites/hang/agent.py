"""Four ways to wait for ever."""

from workers.tools import ToolFailedError


async def solve(case, run):
    kind = case.id.partition(".")[0]
    if kind == "reads":
        try:
            await run.tools.call("look", key="k")
        except ToolFailedError as failed:
            return failed.observation.text
    if kind == "acts":
        await run.tools.call("book", seat="1A")
    while True:  # one that will not take no for an answer is ended by its own time
        try:
            await run.model.complete("Are you there?")
        except Exception:
            if kind != "catches":
                raise


def score(case, sealed):
    return bool(sealed.answer)
