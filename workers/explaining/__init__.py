"""One run told from the history: as a picture of who said what to whom, and in plain words.

A number is believed when each verdict in it can be followed back. The history has every decision about a run, refused
ones too, but one line a fence operation: nobody reads that. Here the lines become steps between lanes.

    reading   a batch on a server, or an exported file → the lines that are about one run
    entries   lines → the commands that they were parts of
    story     the values: lanes, steps, and what is known of the run at the end
    steps     commands → a story, with `life`, `calling` and `scoring` for what each command means
    terminal, mermaid, svg, page, why        a story → text, a diagram, a picture, a page, an explanation
"""
