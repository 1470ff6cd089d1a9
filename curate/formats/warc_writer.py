"""Write documents to WARC as conversion records of plain text, like Common Crawl's WET files.

A record's id is derived from the document's id, which WARC-Refers-To also holds if it is a URI.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from io import BytesIO
from typing import IO

UNDATED = datetime(1970, 1, 1, tzinfo=timezone.utc)  # the standard requires a date in each record


class WarcWriter:
    """A writer of documents as WARC records to a binary stream."""

    def __init__(self, stream: IO[bytes], name: str, software: str) -> None:
        from warcio.warcwriter import WARCWriter

        self._writer = WARCWriter(stream, gzip=True)
        about = f"software: {software}\r\nformat: WARC File Format 1.0\r\n".encode()
        headers = {"WARC-Filename": name}
        self._write("warcinfo", name, "", UNDATED, about, headers)

    def document(
        self,
        id: str,
        text: str | None,
        url: str | None = None,
        date: datetime | None = None,
        lang: str | None = None,
    ) -> int:
        """Write a document as a record; return the number of bytes of its text."""
        body = (text or "").encode()
        headers = {"Content-Type": "text/plain"}
        if id.startswith("urn:") or "://" in id:
            headers["WARC-Refers-To"] = f"<{id}>"
        if lang:
            headers["WARC-Identified-Content-Language"] = lang
        self._write("conversion", id, url or "", date or UNDATED, body, headers)
        return len(body)

    def _write(
        self, kind: str, name: str, url: str, date: datetime, body: bytes, headers: dict[str, str]
    ) -> None:
        record_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{kind} {name}").urn
        stamp = date.astimezone(timezone.utc)
        record = self._writer.create_warc_record(
            _one_line(url).replace(" ", "%20"),
            kind,
            payload=BytesIO(body),
            length=len(body),
            warc_content_type=headers.pop("Content-Type", None),
            warc_headers_dict={
                "WARC-Record-ID": f"<{record_id}>",
                "WARC-Date": f"{stamp:%Y-%m-%dT%H:%M:%SZ}",
                **{key: _one_line(value) for key, value in headers.items()},
            },
        )
        self._writer.write_record(record)


def _one_line(value: str) -> str:
    """Escape characters that are not printable: a line end in an id or URL would add headers."""
    return "".join(c if c.isprintable() else "%" + format(ord(c), "02X") for c in value)
