"""What a pass rate is worth, in figures: errors over clusters, trials, pairs, power, and how often a gate would flip.

Each formula stands here with its source, and in `docs/statistics.md` for readers. scipy and numpy are imported when a
figure asks for them: they take longer to load than all that shows a rate.
"""
