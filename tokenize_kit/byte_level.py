"""The printable letters that stand for bytes in byte-level vocabularies (GPT-2's encoder.py)."""

from __future__ import annotations

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
LETTERS = [""] * 256  # of each byte
for _byte in _PRINTABLE:
    LETTERS[_byte] = chr(_byte)
for _place, _byte in enumerate(_OTHERS):
    LETTERS[_byte] = chr(256 + _place)
_BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}
# The order in which `tokenizers` numbers them: by code point of the letter.
ORDER = sorted(range(256), key=LETTERS.__getitem__)


def spelled(data: bytes) -> str:
    """Bytes as letters."""
    return "".join([LETTERS[byte] for byte in data])


def unspelled(letters: str) -> bytes:
    """Letters as bytes; raises KeyError where one stands for none."""
    return bytes([_BYTES[letter] for letter in letters])
