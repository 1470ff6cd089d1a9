"""The type of a body according to its first bytes, and the types of content that are documents.

Patterns are those of the MIME Sniffing Standard (https://mimesniff.spec.whatwg.org/, sections 6 and
7.1), but a text may have one control character in a hundred, because real pages have them.
"""

from __future__ import annotations

import re

from curate.text.decoding import utf_16_in

BINARY = "application/octet-stream"
GZIP = b"\x1f\x8b\x08"
_PATTERNS = {
    "image/x-icon": rb"\0\0[\x01\x02]\0",
    "image/bmp": rb"BM",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"RIFF.{4}WEBPVP",
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "audio/aiff": rb"FORM.{4}AIFF",
    "audio/mpeg": rb"ID3",
    "audio/ogg": rb"OggS\0",
    "audio/midi": rb"MThd\0\0\0\x06",
    "video/avi": rb"RIFF.{4}AVI\x20",
    "audio/wave": rb"RIFF.{4}WAVE",
    "video/mp4": rb"\0.{3}ftyp(?:.{8}(?:.{4}){0,15})?mp4",
    "video/webm": rb"\x1a\x45\xdf\xa3.{0,34}\x42\x82.{1,8}webm",
    "application/vnd.ms-fontobject": rb".{8}(?:[\0-\x02]\0){2}.{22}LP",  # of any version
    "font/ttf": rb"\0\x01\0\0",
    "font/otf": rb"OTTO",
    "font/collection": rb"ttcf",
    "font/woff": rb"wOFF",
    "font/woff2": rb"wOF2",
    "application/gzip": re.escape(GZIP),
    "application/zip": rb"PK\x03\x04",
    "application/x-rar-compressed": rb"Rar[!\x20]\x1a\x07[\0\x01]",
    "application/pdf": rb"[\t\n\r ]{0,64}%PDF-",
    "application/postscript": rb"%!PS-Adobe-",
}
_BEGINS = re.compile(b"|".join(map(b"(%s)".__mod__, _PATTERNS.values())), re.DOTALL)
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))
_TAG = re.compile(rb"<(?:!--|!doctype html|[a-z][a-z0-9]*[\s/>])")
_HTML = re.compile(rb"(?!<svg\b)" + _TAG.pattern)
_NO_TEXT = (
    "text/css text/javascript text/ecmascript text/jscript text/livescript text/x-javascript"
    " text/x-ecmascript text/x-js text/x-json text/json text/dns text/calendar text/x-vcalendar"
    " text/vcard text/x-vcard text/csv text/tab-separated-values text/vtt text/cache-manifest"
    " text/x-component text/x-cross-domain-policy text/event-stream text/vnd.wap.wmlscript "
)
UNKNOWN = "unknown/unknown application/unknown application/x-unknown x-unknown/unknown".split()


def is_xml(mime: str) -> bool:
    """Return True for XML types (MIME Sniffing Standard, 4.6) and `application/xhtml`."""
    named = mime in ("text/xml", "application/xml", "application/xhtml")
    return named or (mime.startswith("application/") and mime.endswith("+xml"))


def is_document(mime: str) -> bool:
    """Return True if content of this type is a document: HTML, XML or text that people read."""
    if mime.startswith("text/"):
        return f"{mime} " not in _NO_TEXT
    return is_xml(mime)


def looks_like_text(data: bytes) -> bool:
    """Return True if the first 4 KiB could be text or HTML in any common encoding."""
    sample = data[:4096]
    if utf_16_in(sample):
        return True
    control = len(sample) - len(sample.translate(None, _CONTROL))
    return control * 100 <= len(sample)


def _beginning(data: bytes) -> bytes:
    return data[:1024].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").lower()


def sniff_mime(data: bytes) -> str | None:
    """Return the MIME type of a body according to its first bytes: the type of the pattern that
    matches, else XML, HTML, plain text or BINARY (other bytes). Return None for an empty body."""
    if not data:
        return None
    text = looks_like_text(data)
    match = _BEGINS.match(data)
    if match and not (text and match[0].isalnum()):  # a text may begin with BM or ID3
        return list(_PATTERNS)[(match.lastindex or 0) - 1]
    begin = _beginning(data)
    if begin.startswith(b"<?xml") and b"<html" not in begin and b"<!doctype html" not in begin:
        return "application/xml"
    tags = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<script", b"<meta")
    if _TAG.match(begin) or (text and any(tag in begin for tag in tags)):
        return "text/html"
    return "text/plain" if text else BINARY


def type_of(stated: str | None, identified: str | None, data: bytes) -> str | None:
    """Return the MIME type of a body, or None. `stated` is the type that the server sent,
    `identified` the type that the crawler found (Common Crawl asks Apache Tika, which also looks at
    the URL's ending). The crawler's type is ignored if it is unknown, application/octet-stream
    (BINARY) or `message/...` (text for people). The first of these rules that applies decides:

    1. If the first bytes show a type that is no document's, return this type. If this type is
       BINARY and the crawler's type is no document's either, return the crawler's type.
    2. If the crawler's type is not a document's, return it, except if the body begins as HTML.
    3. Return the server's type, else the crawler's, else the type that the first bytes show.
    """
    sniffed = sniff_mime(data)
    if identified in UNKNOWN or identified == BINARY or (identified or "").startswith("message/"):
        identified = None
    other = identified is not None and not is_document(identified)
    if sniffed is not None and not is_document(sniffed):
        return identified if other and sniffed == BINARY else sniffed
    if other and not _HTML.match(_beginning(data)):
        return identified
    return stated or (None if other else identified) or sniffed
