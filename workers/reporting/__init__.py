"""The report of a batch: one page that says what its number is, and lets a reader look behind it.

What is on it
    facts       the values that a page shows
    gather      a batch on a server, or an exported file → the facts, derived from the history by its replay
    lives       the life of each run, and what is counted as a lease, a preemption, a refusal; with
                `timeline` (when), `tally` (refusals by reason) and `owners` (whose a line is)
    details     run by run: in words, as a picture, and its transcript; `index` knows where its lines stand
    texts       somebody else's text, cut to what a page can hold

How it looks
    page, web   the facts → HTML
    command     `evalbus report`
"""
