"""Replay: the recorded history, decided again by the reference models, and compared line by line.

A history proves a number only if somebody else can derive it. So an export is read as evidence: its chain is computed
again, every decision in it is put to the model of its fence, and the snapshot at its end must be the one that those
decisions lead to, byte for byte. The first line that differs is named, with what stands there and what was derived.

    lines.py        the file: its first line, its entries, its last line, and the chain over them
    telling.py      what a line claims, and the error that names the line
    large.py        models of a history that may have a million entries
    silence.py      what the passing of time decided: a lease that ran out, a workspace that was given up
    player.py       one history put to the models
    rules.py        which player: that of the schema under which the history was recorded
    replayed.py     the whole of it: lines in, and what they come to
"""
