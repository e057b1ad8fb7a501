"""How the report looks: words for figures, shapes for charts, and what each section of the page shows.

words      figures as a reader writes them: counts, durations, shares
shapes     figures as paths of an SVG
result     the facts → the number, its doubts, the gate
bars       the facts → where runs and tokens went
prevented  the facts → what naive policies would have made of it
sections   the facts → the other sections
runs       the facts → the table of runs, as rows of HTML and as data for the page's script
assets     the templates, the style sheet and the script
"""
