"""Tests: against real servers and real processes, waiting for conditions and never for time."""
