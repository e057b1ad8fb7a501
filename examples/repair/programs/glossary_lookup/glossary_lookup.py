"""A glossary that is looked up without regard to case."""

from __future__ import annotations


class Glossary:
    """Terms and their explanations, in any language."""

    def __init__(self) -> None:
        """Start with no terms."""
        self._entries: dict[str, str] = {}

    @staticmethod
    def _key(term: str) -> str:
        """Return the form under which a term is kept: equal for terms that differ only in case."""
        return term.strip().lower()

    def add(self, term: str, explanation: str) -> None:
        """Explain `term`; a second explanation replaces the first."""
        self._entries[self._key(term)] = explanation

    def find(self, term: str) -> str | None:
        """Return the explanation, or None for a term that is not in the glossary."""
        return self._entries.get(self._key(term))

    def __len__(self) -> int:
        """Return the number of different terms."""
        return len(self._entries)
