"""One module a fence: its state, read from the rows and streams of a batch."""
