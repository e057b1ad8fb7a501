"""Histories that earlier releases wrote, kept so that each later release shows that it replays them.

schema-1.jsonl.zst     written under schema 1: every fence, deaths, late messages, undone effects, holes; closed

A file is written once, by the release that brings its schema, and never again: `make_history.py` beside it says how.
"""
