"""The seven rehearsals. Each module has `rehearse(seed, size) -> Findings`."""
