"""The mechanism: server, connection, scripts, streams, history, the fences and their reference models."""
