"""Inspect AI tasks, run unchanged over the fleet.

    target     `inspect:FILE.py@task`, as a path that every role understands
    table      the suite's table `[inspect]`
    loading    the task from its file, and its samples as cases
    feed       the dataset of a worker's eval: samples that are put in while it runs
    hosting    one long-lived `eval_async` in a worker process, fed one (sample, epoch) at a time
    solver     a run, as the worker drives it: put into the eval, sealed as the sample that came out
    sealed     what is sealed, and what a verdict keeps
    shown      what of it `evalbus show` shows, read without Inspect
    scorer     the task's own scorers over what was sealed, in the scorer's process
    log        a closed batch as an `.eval` log

`inspect_ai` takes seconds to import, and is an extra: only `loading`, and what comes after it, imports it.
"""
