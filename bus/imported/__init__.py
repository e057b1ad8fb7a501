"""Import: a history that was exported, put back into a server so that everything that looks at a batch can look at it.

The file holds decisions, a server holds rows, counters and streams; so what the decisions came to is followed again,
a line at a time. What is put back is for looking only. Its row has the field `imported`, and lacks the field that a
declaration leaves: by that every script refuses it before anything else, and no role is ever told of it.

    entry.py        one entry of the history as it is kept: what the export says of it, nothing added
    standing.py     how each run stands after the last line: state, holder, generation, head, score, hole
    effects.py      likewise, the tools' calls of the runs
    writing.py      the keys, written so that nobody sees half of them
    looking.py      what is answered to whoever would do more than look
"""
