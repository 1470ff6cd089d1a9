"""MediaWiki dumps written by hand."""

from __future__ import annotations

import bz2
from pathlib import Path
from xml.sax.saxutils import escape

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="an">
  <siteinfo>
    <sitename>Biquipedia</sitename>
    <dbname>anwiki</dbname>
    <base>https://an.wikipedia.org/wiki/Portalada</base>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Imachen</namespace>
      <namespace key="14" case="first-letter">Categor\u00eda</namespace>
    </namespaces>
  </siteinfo>
"""

TAIL = "</mediawiki>\n"


def page(number: int, text: str = "Some '''text'''.", space: int = 0, more: str = "") -> str:
    """A page of a dump, with an older revision behind the newer one."""
    return f"""  <page>
    <title>Page {number}</title>
    <ns>{space}</ns>
    <id>{number}</id>{more}
    <revision><timestamp>2024-05-0{number % 9 + 1}T10:00:00Z</timestamp>
      <model>wikitext</model><text xml:space="preserve">{escape(text)}</text></revision>
    <revision><timestamp>2004-01-01T10:00:00Z</timestamp><text>old</text></revision>
  </page>
"""


def multistream(path: Path, count: int, a_stream: int = 5) -> list[str]:
    """A multistream file of articles with text that hardly packs; returns their ids."""
    import random

    draw = random.Random(7)
    streams = [bz2.compress(HEAD.encode())]
    for first in range(0, count, a_stream):
        noise = ["".join(draw.choices("abcdefghij ", k=20_000)) for _ in range(a_stream)]
        pages = (page(first + n, text) for n, text in enumerate(noise))
        streams.append(bz2.compress("".join(pages).encode()))
    path.write_bytes(b"".join([*streams, bz2.compress(TAIL.encode())]))
    return [f"anwiki:{n}" for n in range(count)]
