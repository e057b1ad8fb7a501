"""The whole demonstration: serve the small model, evaluate it over workers that are killed, compare with a plain loop.

    python demo.py [--tasks N] [--kills N] [--url URL --model NAME]

Exit 0: the same tasks passed in both. Exit 5: they did not, which would be evalbus' fault and not the model's.
With --url, another endpoint is asked instead; it must answer the same prompt with the same text each time.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent


def serve() -> tuple[subprocess.Popen[str], str]:
    """Start the model's server; its first line is its URL."""
    log = Path(tempfile.mkstemp(prefix="evalbus-llm-", suffix=".log")[1])
    process = subprocess.Popen(
        [sys.executable, HERE / "serve.py"], stdout=subprocess.PIPE, stderr=log.open("w"), text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    if not url:
        sys.exit(f"the model's server did not start: see {log} (is the extra there? pip install 'evalbus[llm]')")
    return process, url


def workers_of(run: subprocess.Popen[bytes]) -> list[int]:
    """The worker processes that this very run has started, by /proc."""
    parents, found = {run.pid}, []
    for _ in range(3):  # run → nursery → worker
        for place in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                words = (place / "cmdline").read_text()
            except OSError:
                continue
            pid = int(place.name)
            if parent in parents and pid not in parents:
                parents.add(pid)
                if '"role": "worker"' in words:
                    found.append(pid)
    return found


def evaluate(environment: dict[str, str], kills: int, out: Path) -> dict[str, str]:
    """`evalbus run`, and a kill -9 of one of its workers now and then. Returns run → bin."""
    fleet = ["--workers", "3", "--scorers", "1"]
    command = [sys.executable, "-m", "workers.cli", "run", HERE, *fleet, "--json", out]
    run = subprocess.Popen(command, env=environment)
    chance, done = random.Random(270), 0  # noqa: S311 - which worker dies is no secret
    while run.poll() is None:
        time.sleep(0.5)
        alive = workers_of(run)
        if done < kills and alive and chance.random() < 0.12:
            os.kill(chance.choice(alive), signal.SIGKILL)
            done += 1
    if run.returncode not in (0, 1, 3):
        sys.exit(run.returncode)
    result = json.loads(out.read_text())
    print(f"workers killed: {done} · tokens: {result['tokens']} · refusals: {result['rejects']}")
    if result["holes"]:
        print(f"holes, where a run has no verdict: {result['holes']}")
    return result["runs"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=30, help="of 164")
    parser.add_argument("--kills", type=int, default=4, help="workers killed with SIGKILL while it runs")
    parser.add_argument("--url", help="another endpoint, such as http://127.0.0.1:8080/v1")
    parser.add_argument("--model", default="gemma-3-270m")
    given = parser.parse_args()
    server, url = (None, given.url) if given.url else serve()
    try:
        environment = {
            **os.environ,
            "EVALBUS_MODEL_URL": url,
            "EVALBUS_MODEL": given.model,
            "HUMANEVAL_TASKS": str(given.tasks),
        }
        place = Path(tempfile.mkdtemp(prefix="evalbus-humaneval-"))
        runs = evaluate(environment, given.kills, place / "evalbus.json")
        subprocess.run(
            [sys.executable, HERE / "plain.py", url, given.model, str(given.tasks), place / "plain.json"], check=True
        )
    finally:
        if server is not None:
            server.terminate()
            server.wait()
    ours = {run.split("#")[0] for run, verdict in runs.items() if verdict == "pass"}
    plain = {
        task.replace("/", "-") for task, passed in json.loads((place / "plain.json").read_text()).items() if passed
    }
    print(f"passed under evalbus: {len(ours)} · in the plain loop: {len(plain)} · of {given.tasks}")
    if ours != plain:
        print(f"only under evalbus: {sorted(ours - plain)} · only in the plain loop: {sorted(plain - ours)}")
        sys.exit(5)
    print("the same tasks passed")


if __name__ == "__main__":
    main()
