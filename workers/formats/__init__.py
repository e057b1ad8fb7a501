"""Evaluations written for other tools, as suites: `evalbus convert`.

A conversion writes a directory that can be read, changed and kept: a suite like any other.
What a format has and evalbus has not is named with its file and line, and nothing is written; what merely says how
another tool shows or stores its results is left out.

    yaml_file      YAML with the line of each value, for errors
    converted      what a conversion comes to, and how it is written
    starting       `evalbus init`: a suite to begin with
    promptfoo/     prompts x tests with assertions
    assertions     what is asserted of an answer: checked when converted, judged by the scorers
    openai_evals   samples of OpenAI evals, and its registry files;  grading: how its classes compare
    asking         the solver of converted suites: the case's messages to the suite's model
"""
