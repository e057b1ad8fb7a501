"""The judge plane: sealed answers graded by a model, under a binding that says which model, asked what, and how read.

    table     what a suite says of its judge: `[scorer.model]`, `[scorer.identity]`
    binding   what a score is bound to, and what an answer shows of that
    prompt    the question, filled in
    reading   the grade in what was said
    hearing   a judge's calls through the loop that the candidate's take: another lease, another desk, no transcript
    judge     one run's judgement

Nothing is imported here: the suite's tables are read by processes that never ask a judge.
"""
