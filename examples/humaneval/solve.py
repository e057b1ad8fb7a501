"""The candidate: the task's prompt as it is, and what the model writes after it."""


async def solve(case, run):
    reply = await run.model.complete(case.input)
    return reply.text
