"""Bytes to text: which encoding a page is in, and decoding that never fails.

Order: byte order mark; valid UTF-8 (a page that decodes as UTF-8 is UTF-8, whatever it claims);
the charset of the HTTP header; the page's own meta tag; detection by uchardet (resiliparse).
Labels are mapped as the WHATWG Encoding Standard says (iso-8859-1 means windows-1252).
"""

from __future__ import annotations

import codecs

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# WHATWG names that Python knows by another name.
PYTHON_NAMES = {"windows-874": "cp874", "x-mac-cyrillic": "mac-cyrillic", "macintosh": "mac-roman"}


def _known(label: str | None) -> str | None:
    if not label:
        return None
    from resiliparse.parse.encoding import map_encoding_to_html5

    try:
        mapped = map_encoding_to_html5(label.strip().lower(), False)
        return codecs.lookup(PYTHON_NAMES.get(mapped, mapped)).name if mapped else None
    except (LookupError, ValueError, TypeError):
        return None


def decode(payload: bytes, charset: str | None = None, *, html: bool = True) -> tuple[str, str]:
    """(text, encoding): undecodable bytes and lone surrogates become replacement characters."""
    for mark, encoding in BOMS:
        if payload.startswith(mark):
            return payload[len(mark) :].decode(encoding, "replace"), encoding
    try:
        return payload.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        # A page cut off inside a character is still UTF-8.
        if error.start > 0 and error.start >= len(payload) - 3:
            return payload.decode("utf-8", "replace"), "utf-8"
    from resiliparse.parse.encoding import detect_encoding

    name = _known(charset)
    if name in (None, "utf-8", "ascii"):
        name = _known(detect_encoding(payload, from_html_meta=html)) or "windows-1252"
    text = payload.decode(name or "windows-1252", "replace")
    return text.encode("utf-8", "replace").decode("utf-8"), name or "windows-1252"
