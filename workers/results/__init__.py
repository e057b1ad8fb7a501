"""What a batch comes to, and how it is shown.

outcome.py       the one object behind the closing screen, `--json` and the gate;  numbers.py: what its rate is worth
progress.py      a batch while it runs;  status.py: `evalbus status`
showing.py       `evalbus show`;  showing_files.py: of a file;  beside.py: two;  reviewing.py: `evalbus review`
whole.py         a batch, or all partitions of one, under one name;  fetching.py: what one is now, by its name
derived.py       what a batch came to by its history alone;  prevented.py: and where nobody had compared anything
screen.py        where results appear
"""
