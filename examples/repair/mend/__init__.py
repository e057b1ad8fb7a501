"""Search-based program repair: where the fault may be, what to try there, and what the tests say to it."""
