"""A running batch, looked at: `evalbus top` in the terminal, `evalbus serve` in the browser.

Both show the same view. Nothing here can change a batch: it is read with the rights of a reader, and the web server
answers nothing but GET and HEAD.

    view      the values: a batch in a list, a batch in full, what a person should know of it
    looking   a batch on the server → a view, at a cost that does not grow with the batch
    tail      the newest refusals of a history that may be long
    feed      one poller for all who look at the same thing, and none when nobody looks
    terminal  views → lines and rows of a terminal
    top       the screens of the terminal
    pages     views → HTML, whole pages and the parts that change
    guard     who may ask the web server, and for what
    reports   the report of a batch that has ended, made once
    web       addresses → pages and streams
    command   the two commands
"""
