"""A call of a model, from `run.model` to what it cost; `workers.endpoints` has the wire.

model.py      `run.model`, as a solver has it
calls.py      a run's calls: answered from its conversation, or asked;  party.py: a run's, or a judge's
attempt.py    one attempt at a call, as the fences want it
plane.py      the suite's model as one worker reaches it;  table.py: the `[model]` table
gateway.py    OpenAI's API, by which a client of the solver's own asks;  openai_api.py, openai_form.py: what it speaks
metering.py   what a call costs, as it is seen from here;  billing.py: as the endpoint says
"""
