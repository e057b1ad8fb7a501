"""The plainest candidate, and a judge that any answer pleases."""


async def solve(case, run):
    reply = await run.model.complete(case.input)
    return reply.text


def score(case, sealed):
    return bool(sealed.answer)
