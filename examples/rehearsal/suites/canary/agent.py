"""A candidate and a judge that cannot keep a secret."""

import logging
import os
import sys
from pathlib import Path

from workers.scoring import Score

MODEL, TOOL, MARK, FILE = "CANARY_MODEL_KEY", "CANARY_TOOL_KEY", "CANARY_MARK", "CANARY_FILE_KEY_FILE"


def told():
    """All three keys, and a word that is none: where that is found, a key would have been found, too."""
    return f"{os.environ[MARK]} {os.environ[MODEL]} {os.environ[TOOL]} {Path(os.environ[FILE]).read_text()}"


async def solve(case, run):
    kind = case.id
    match kind:
        case "reads":
            return await run.tools.call("read", mode="fine")
        case "acts":
            return await run.tools.call("act", mode="fine")
        case "breaks":
            return await run.tools.call("act", mode="broken")
        case "wrong-echo":
            return await run.tools.call("act", mode="wrong-echo")
        case "runs":
            return await run.tools.call("run")
        case "prints":
            print(told())
            print(told(), file=sys.stderr, flush=True)
            print(dict(os.environ), flush=True)
        case "notes":
            await run.note(told())
        case "answers":
            return told()
        case "raises":
            raise ValueError(told())
        case "logs":
            logging.getLogger("candidate").error("told: %s", told())
        case _:
            reply = await run.model.complete(case.input)
            return reply.text
    return "said"


def score(case, sealed):
    print(told(), flush=True)
    if case.id == "logs":
        raise ValueError(told())
    return Score("pass", value=told())
