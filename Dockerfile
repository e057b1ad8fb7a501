FROM python:3.13-slim

WORKDIR /app
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY bus bus
COPY lua lua
COPY workers workers
RUN pip install --no-cache-dir -c requirements.lock . && useradd --create-home evalbus

# Solvers are other people's code: they get a user with nothing, and a suite that they cannot write to.
USER evalbus
WORKDIR /home/evalbus
ENV PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["evalbus"]
