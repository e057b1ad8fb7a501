"""Three Inspect tasks of different shape. They ask Inspect's mock model, so they cost nothing and need no key.

evalbus run inspect:examples/inspect/tasks.py@addition --workers 2
inspect eval examples/inspect/tasks.py@addition
"""

import re

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageTool,
    ChatMessageUser,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import Score, accuracy, choice, match, mean, model_graded_qa, scorer, stderr
from inspect_ai.solver import Generate, TaskState, generate, multiple_choice, solver, use_tools
from inspect_ai.tool import tool

USAGE = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)


def say(text):
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = USAGE
    return output


def asked(messages):
    return next(message.text for message in reversed(messages) if isinstance(message, ChatMessageUser))


# --- one question, one answer -----------------------------------------------------------------------------


def add(messages, tools, tool_choice, config):
    """It adds, but for what ends in 7: there it is off by one."""
    one, two = map(int, re.findall(r"\d+", asked(messages))[:2])
    return say(f"{one + two + (two % 10 == 7)}")


@task
def addition(n: int = 10):
    return Task(
        dataset=[Sample(id=i, input=f"What is {i} + {2 * i + 1}?", target=str(3 * i + 1)) for i in range(n)],
        solver=generate(),
        scorer=match(numeric=True),
        model=get_model("mockllm/model", custom_outputs=add),
    )


# --- an agent with a tool, more than once -----------------------------------------------------------------


@tool
def stock():
    async def execute(item: str) -> str:
        """How many there are.

        Args:
            item: What of.
        """
        return str(len(item))

    return execute


def clerk(messages, tools, tool_choice, config):
    """Looks before it answers; it cannot read numbers above 5."""
    last = messages[-1]
    if isinstance(last, ChatMessageTool):
        return say(f"There are {last.text if int(last.text) < 6 else 'many'}.")
    output = ModelOutput.for_tool_call("mockllm/model", "stock", {"item": asked(messages).split()[-1].rstrip("?")})
    output.usage = USAGE
    return output


@solver
def remember():
    """Which time it is decides as well: an epoch is a run of its own, and is told apart."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set("epoch", state.epoch)
        state.metadata["asked"] = len(state.messages)
        return await generate(state)

    return solve


@scorer(metrics={"found": [accuracy(), stderr()], "*": [mean()]})
def counted():
    async def score(state: TaskState, target) -> Score:
        found = target.text in state.output.completion
        shaky = state.metadata.get("shaky") and state.store.get("epoch") == 2
        return Score(
            value={"found": "C" if found and not shaky else "I", "turns": len(state.messages)},
            answer=state.output.completion,
        )

    return score


@task
def shelf():
    items = ["nuts", "bolts", "screws", "nails", "washers", "pegs"]
    return Task(
        dataset=[
            Sample(id=f"item/{item}", input=f"How many {item}?", target=str(len(item)), metadata={"shaky": i % 2})
            for i, item in enumerate(items)
        ],
        solver=[use_tools(stock()), remember()],
        scorer=counted(),
        epochs=Epochs(3, ["mean", "at_least_2"]),
        model=get_model("mockllm/model", custom_outputs=clerk),
    )


# --- choices, and a model that grades ---------------------------------------------------------------------

CAPITALS = {"France": "Paris", "Peru": "Lima", "Kenya": "Nairobi", "Japan": "Tokyo"}


def traveller(messages, tools, tool_choice, config):
    """Knows all capitals but one."""
    text = asked(messages)
    country = next(name for name in CAPITALS if name in text)
    letters = dict(re.findall(r"^([A-Z])\) (\w+)$", text, re.MULTILINE))
    known = "Lima" if country == "Kenya" else CAPITALS[country]
    return say(f"ANSWER: {next(letter for letter, city in letters.items() if city == known)}")


def grader(messages, tools, tool_choice, config):
    """Grades generously: it looks for the letter only."""
    return say("GRADE: C" if "ANSWER: A" in asked(messages) else "GRADE: I")


@task
def capitals():
    cities = sorted(CAPITALS.values())
    return Task(
        dataset=[
            Sample(id=name, input=f"What is the capital of {name}?", choices=cities, target="ABCD"[cities.index(city)])
            for name, city in CAPITALS.items()
        ],
        solver=multiple_choice(),
        scorer=[choice(), model_graded_qa(model=get_model("mockllm/model", custom_outputs=grader))],
        model=get_model("mockllm/model", custom_outputs=traveller),
    )
