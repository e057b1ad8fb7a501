"""A shift cipher: each letter moves along the alphabet, everything else stays."""

from __future__ import annotations

import string


def shift_letter(letter: str, by: int) -> str:
    """Return the letter `by` places further on, going round at the end and keeping its case."""
    alphabet = string.ascii_uppercase if letter.isupper() else string.ascii_lowercase
    return alphabet[(alphabet.index(letter) + by) % len(alphabet)]


def encrypt(text: str, key: int) -> str:
    """Return `text` with each English letter moved by `key` places."""
    return "".join(shift_letter(sign, key) if sign in string.ascii_letters else sign for sign in text)


def decrypt(text: str, key: int) -> str:
    """Return the text that `encrypt` turned into `text` with the same `key`."""
    return encrypt(text, -key)
