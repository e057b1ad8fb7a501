"""A promptfoo configuration as a suite.

configuration   the whole: prompts x tests, the scorer, the options
prompts         its prompts, and how templates are filled in
provider        its provider, as a `[model]` table
tests           its tests, defaults merged in
reading         in whichever file they are written;  csv_tests: rows as tests
variables       what a test's templates are filled in with
written         a value with the place where it is written, for errors
"""

from workers.formats.promptfoo.configuration import convert

__all__ = ["convert"]
