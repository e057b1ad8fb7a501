"""The roles and what they run: planner, worker, scorer, suites, solvers, scorers, the command line."""
