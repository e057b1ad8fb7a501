"""The acceptance rule of each fence: schedules with a denominator, played on a live server and on every mutant.

`bus/acceptance/<fence>.py` has RULES. A rule plays its schedules through whatever speaks the contract and counts what
breaks the property that it is named for: none on the server, at least one on each naive policy that it is meant for. A
rule that no policy can break would prove nothing.
"""
