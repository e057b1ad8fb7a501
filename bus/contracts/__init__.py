"""One table a fence: its operations, their arguments and outcomes, and the state that it dumps."""
