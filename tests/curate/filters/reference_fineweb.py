"""FineWeb's quality rules in plain Python: what the kernels must find.

Penedo et al. 2024, section 3.6; DataTrove 0.10 fineweb_quality_filter.py.
"""

from __future__ import annotations

from curate.filters.tokens import TERMINAL
from tests.curate.filters.reference_gopher import copies, share, symbol_words


def fineweb(text: str, variant: str) -> tuple[dict[str, float], set[str]]:
    """(measured values by column, rules that drop the document)."""
    lines = [line for line in text.split("\n") if line.strip()]
    paper = variant == "paper"
    marked = sum(bool(TERMINAL[ord(line[-1])]) for line in lines)
    short = sum(len(line) < 30 if paper else len(line) <= 30 for line in lines)
    out: dict[str, float] = {
        "lines": len(lines),
        "end_marks": share(marked, len(lines)),
        "short_lines": share(short, len(lines)),
        "duplicate_line_chars": share(copies(lines, False)[1], len(text.replace("\n", ""))),
    }
    if not paper:
        out["newlines"] = share(text.count("\n"), len(symbol_words(text)))
    if not lines:
        return out, {"empty"}
    if paper:
        fires = {
            "end_marks": out["end_marks"] <= 0.12,
            "short_lines": out["short_lines"] >= 0.67,
            "duplicate_line_chars": out["duplicate_line_chars"] >= 0.1,
        }
    else:
        fires = {
            "end_marks": out["end_marks"] < 0.12,
            "short_lines": out["short_lines"] > 0.67,
            "duplicate_line_chars": out["duplicate_line_chars"] > 0.01,
            "newlines": out["newlines"] > 0.3,
        }
    return out, {rule for rule, fired in fires.items() if fired}
