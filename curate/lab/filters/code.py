"""Filters for source code by the rules of RedPajama and StarCoder. A column holds each file's path.

Sources: RedPajama-Data, branch rp_v1, data_prep/github/github_run_filter.py and
github_clean_dedup_local.py; StarCoder (Li et al. 2023, section 3), whose code is
bigcode-dataset/preprocessing/filtering.py; StarCoder 2 (Lozhkov et al. 2024, section 2.4) for
generated files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.documents.limits import Limit, decide
from curate.filters.word_lists import WordList, WordLists
from curate.steps.contracts import Step, step
from curate.text.encodings import unescape

GENERATED_LINES = 5  # StarCoder 2, section 2.4, from memory, as are the phrases
XML_CHARS = 100  # filtering.py, filter_xml
_HTML, _DATA, _XML_SYNTAX = {"html", "htm"}, {"json", "yaml", "yml"}, {"xsl", "xslt"}


def file_paths(docs: Documents, column: str) -> list[str]:
    """Return each row's path, from the column or, if there is no such column, from the URL."""
    name = column if column in docs.table.column_names else "url"
    return [str(value or "") for value in docs.table[name].to_pylist()]


def extension(path: str) -> str:
    """Return a file's extension in lower case, or the whole file name if it has none."""
    name = re.split(r"[?#]", path)[0].rpartition("/")[2]
    return name.rpartition(".")[2].lower()


def visible_chars(html: str) -> int:
    """Return the number of visible characters of an HTML page: without tags, comments, scripts and
    styles, and with character references resolved. The time is linear in the page's length."""
    lower, parts, at = html.lower(), [], 0
    while 0 <= at < len(html):
        tag = html.find("<", at)
        parts.append(html[at : tag if tag >= 0 else len(html)])
        if tag < 0:
            break
        if html.startswith("<!--", tag):
            end = html.find("-->", tag)
        elif html[tag + 1 : tag + 2].isalpha() or html[tag + 1 : tag + 2] in ("/", "!", "?"):
            end = html.find(">", tag)
            for name in ("script", "style"):
                if end >= 0 and lower.startswith(name, tag + 1):
                    end = lower.find(f"</{name}", end)
                    end = html.find(">", end) if end >= 0 else end
        else:
            parts.append("<")
            end = tag
        if end < 0:
            break
        at = end + (3 if html.startswith("-->", end) else 1)
    return len(unescape("".join(parts)))


def is_generated(text: str, phrases: Sequence[str]) -> bool:
    head = "\n".join(text[:4000].splitlines()[:GENERATED_LINES]).lower()
    return any(phrase.lower() in head for phrase in phrases)


@step("code")
class Code(Step, WordLists):
    """Drops source files that look like data, markup or generated output.

    Columns: `max_line`, `mean_line`, `alnum`, `letters_per_token`, `generated`, `xml`; `html_text`
    and `html_share` (HTML files only); `data_chars` (JSON and YAML files only).
    """

    paper: ClassVar[str] = "Li et al. 2023 (StarCoder), section 3; RedPajama-Data, data_prep/github"
    only_measures: ClassVar[bool] = True
    word_lists: ClassVar[tuple[str, ...]] = ("generated_phrases",)

    variant: Literal["starcoder", "redpajama"] = Field(
        "starcoder",
        description="The rules to apply. starcoder adds rules for XML, HTML, JSON, YAML and"
        " generated files; redpajama adds rules for tokens and extensions, and counts line ends in"
        " the mean line length.",
    )
    path_column: str = Field(
        "path",
        description="The column with the file's path, whose extension gives the kind of file. If"
        " there is no such column, the URL is used.",
    )
    max_line: int = Field(
        1000,
        ge=0,
        description="Files with a line of more characters are dropped (both sources).",
    )
    max_mean_line: float = Field(
        100,
        ge=0,
        description="Files whose mean line length in characters is larger are dropped (both"
        " sources).",
    )
    min_alnum: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Files with a smaller share of letters and digits are dropped (both sources).",
    )
    min_letters_per_token: float | None = Field(
        None,
        ge=0,
        description="Files with fewer letters per token are dropped. None: 1.5 for variant"
        " redpajama, else no limit (github_run_filter.py, with a model's tokens; here a token is a"
        " run of word characters or a run of signs, as in Dolma's code tagger).",
    )
    extensions: tuple[str, ...] | None = Field(
        None,
        description="Only files with these extensions, or names such as Makefile, are kept. None:"
        " RedPajama's list for variant redpajama (github_run_filter.py), else all files.",
    )
    generated_phrases: WordList = Field(
        (
            "auto-generated",
            "autogenerated",
            "automatically generated",
            "generated automatically",
            "this file is generated",
        ),
        description="Files with one of these phrases in their first five lines are dropped by"
        " variant starcoder (Lozhkov et al. 2024, section 2.4). A list, or a file with one phrase"
        " per line.",
    )
    min_html_text: int = Field(
        100,
        ge=0,
        description="HTML files with no more characters of visible text than this are dropped by"
        " variant starcoder (filtering.py).",
    )
    min_html_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="HTML files with no larger share of visible text than this are dropped by"
        " variant starcoder (filtering.py).",
    )
    min_data_chars: int = Field(
        50,
        ge=0,
        description="JSON and YAML files with fewer characters are dropped by variant starcoder (Li"
        " et al. 2023; its code has 100 by default).",
    )
    max_data_chars: int = Field(
        5000,
        ge=0,
        description="JSON and YAML files with more characters are dropped by variant starcoder (Li"
        " et al. 2023, filtering.py).",
    )

    @property
    def allowed_extensions(self) -> frozenset[str]:
        """The extensions that are kept, in lower case without the dot; empty if all are kept."""
        chosen = self.extensions
        if chosen is None:
            chosen = REDPAJAMA_EXTENSIONS if self.variant == "redpajama" else ()
        return frozenset(name.removeprefix(".").lower() for name in chosen)

    def limits(self) -> list[Limit]:
        letters = self.min_letters_per_token
        if letters is None and self.variant == "redpajama":
            letters = 1.5
        rules = [
            Limit("long_line", "max_line", "max_line", self.max_line, above=True),
            Limit("long_lines", "mean_line", "max_mean_line", self.max_mean_line, above=True),
            Limit("few_alnum", "alnum", "min_alnum", self.min_alnum, above=False),
            Limit(
                "few_letters", "letters_per_token", "min_letters_per_token", letters, above=False
            ),
        ]
        if self.variant == "redpajama":
            return rules
        least, share = self.min_html_text, self.min_html_share
        return [
            *rules,
            Limit("generated", "generated", "", 0, above=True),
            Limit("xml", "xml", "", 0, above=True),
            Limit("html_text", "html_text", "min_html_text", least, above=False, closed=True),
            Limit("html_share", "html_share", "min_html_share", share, above=False, closed=True),
            Limit("small_data", "data_chars", "min_data_chars", self.min_data_chars, above=False),
            Limit("large_data", "data_chars", "max_data_chars", self.max_data_chars, above=True),
        ]

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.ratios_kernel import character_classes, class_counts, code_points
        from curate.filters.repeats import ratio
        from curate.text.tables import segments
        from curate.text.unspaced import row_sums

        classes, counted = character_classes()
        rows, codes = code_points(*docs.buffers())
        counts, longest = class_counts(rows, codes, classes, counted["line_ends"])
        alnum, letters = counts @ counted["alphanumerics"], counts @ counted["letters"]
        # A token is a match of `\w+|[^\w\s]+`: it begins where the kind of character changes.
        kind = np.where(counted["alphanumerics"], 1, 2 * ~counted["white_space"])
        kinds = np.where(codes == ord("_"), 1, kind[classes[codes]])
        begins = np.diff(kinds, prepend=0) != 0
        begins[rows[:-1][rows[:-1] < len(codes)]] = True
        tokens = row_sums(rows, begins & (kinds > 0))
        chars, lines = counts.sum(axis=1), np.diff(segments(docs).lines.rows)
        mean = chars
        if self.variant == "starcoder":
            mean = chars - counts @ counted["line_ends"]
        docs = docs.annotate("max_line", longest)
        docs = docs.annotate("mean_line", ratio(mean, lines))
        docs = docs.annotate("alnum", ratio(alnum, chars))
        docs = docs.annotate("letters_per_token", ratio(letters, tokens))
        endings = [extension(path) for path in file_paths(docs, self.path_column)]
        if self.variant == "starcoder":
            docs = self._of_kind(docs, endings, chars)
        docs = decide(docs, self.limits())
        if not self.allowed_extensions:
            return docs
        dropped = np.array([e not in self.allowed_extensions for e in endings], np.bool_)
        return docs.drop(dropped, "extension", detail=endings)

    def _of_kind(self, docs: Documents, endings: list[str], chars: np.ndarray) -> Documents:
        rows = len(docs)
        generated, xml = np.zeros(rows, np.int8), np.zeros(rows, np.int8)
        text, share, data = (np.full(rows, np.nan) for _ in range(3))
        phrases = self.entries("generated_phrases")
        for row, content in enumerate(docs.text.to_pylist()):
            content, ending = content or "", endings[row]
            generated[row] = is_generated(content, phrases)
            xml[row] = ending not in _XML_SYNTAX and "<?xml version=" in content[:XML_CHARS]
            if ending in _HTML:
                text[row] = visible_chars(content)
                share[row] = text[row] / max(len(content), 1)
            elif ending in _DATA:
                data[row] = chars[row]
        columns = {"generated": generated, "xml": xml, "html_text": text, "html_share": share}
        for name, values in (columns | {"data_chars": data}).items():
            docs = docs.annotate(name, pa.array(values, from_pandas=True))
        return docs


# github_run_filter.py, extensions_whitelist.
REDPAJAMA_EXTENSIONS = tuple(
    "asm bat cmd c h cs cpp hpp c++ h++ cc hh cmake css dockerfile f90 f f03 f08 f77 f95 for fpp go"
    " hs html java js jl lua md markdown php php3 php4 php5 phps phpt pl pm pod perl ps1 psd1 psm1"
    " py rb rs sql scala sh bash command zsh ts tsx tex vb Makefile xml rst m smali".split()
)

_NOTICE = re.compile(r"copyright|licen[cs]e", re.IGNORECASE)
HEAD_LINES = 100
RULES = ("notice",)


def notices(text: str, greedy: bool) -> list[tuple[int, int]]:
    """Return (start, end), in characters, of each passage to cut: the comment lines at the
    beginning of a file, and the first block comment in the 100 lines after them. Each is cut only
    if it mentions copyright or a licence. With `greedy`, as in RedPajama's code, the comment lines
    are always cut, and the block comment must have the word copyright."""
    spans = []
    end, commented = 0, False
    for line in text.split("\n"):
        if not line.lstrip().startswith(("//", "#", "--")) and line:
            break
        if not greedy and line.startswith(("#!", "#include", "#pragma", "#if", "#define")):
            break
        commented |= bool(line)
        end = min(end + len(line) + 1, len(text))
    if end and (greedy or (commented and _NOTICE.search(text[:end]))):
        spans.append((0, end))
    start = spans[0][1] if spans else 0
    head = "\n".join(text[start:].split("\n")[:HEAD_LINES])
    first = head.find("/*")  # clean_copyright_comments, PAT
    last = head.find("*/", first + 2) + 2
    if 0 <= first < last:
        block = head[first:last]
        if "copyright" in block.lower() if greedy else _NOTICE.search(block):
            spans.append((start + first, start + last))
    return spans


@step("license_notice")
class LicenseNotice(Step):
    """Cuts copyright and licence notices from the heads of source files."""

    paper: ClassVar[str] = "RedPajama-Data, data_prep/github/github_clean_dedup_local.py"

    variant: Literal["notice", "redpajama"] = Field(
        "notice",
        description="The passages to cut. notice: comments with the word copyright or licence."
        " redpajama: also every other comment line that a file begins with, and lines such as"
        " #include, as RedPajama's code does.",
    )

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.cutting import cut

        clean = ~docs.marked()
        edits: list[tuple[int, int, int]] = []
        for row, text in enumerate(docs.text.to_pylist()):
            if text and clean[row]:
                for start, end in notices(text, self.variant == "redpajama"):
                    first = len(text[:start].encode())
                    edits.append((row, first, first + len(text[start:end].encode())))
        rows, begin, stop = (np.array([e[k] for e in edits], np.int64) for k in range(3))
        zeros = np.zeros(len(edits), np.int64)
        return cut(docs, Spans(rows, begin, stop, zeros, RULES, zeros))
