"""What a solver may call: functions, addresses, programs and MCP servers, each with what it changes declared.

    from workers.tools import call

    async def solve(case, run):
        text = await run.tools.call("search", query=case.input)
        booked, mailed = await run.tools.gather(call("book", seat="12A"), call("mail", to="a@example.org"))

A tool that reads or changes the run's directory is called where the run is. One with effects outside, or marked
`remote`, is executed by any worker from the batch's `tools` stream, at most once, and taken back by its inverse when
nobody can say whether it was.
"""

from __future__ import annotations

from workers.tools.values import Call, NothingDoneError, Observation, ToolContext, ToolFailedError, call

__all__ = ["Call", "NothingDoneError", "Observation", "ToolContext", "ToolFailedError", "call"]
