"""The fences: one protocol a module, each with its story, its states, its reasons and its typed operations."""
