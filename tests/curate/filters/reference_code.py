"""RedPajama's and StarCoder's measures of source files in plain Python."""

from __future__ import annotations

import re


def code(text: str, variant: str) -> dict[str, float]:
    lines = text.splitlines()
    sizes = [len(line) for line in lines]
    tokens = len(re.findall(r"\w+|[^\w\s]+", text))
    in_lines = len(text) if variant == "redpajama" else sum(sizes)
    return {
        "max_line": max(sizes, default=0),
        "mean_line": in_lines / len(lines) if lines else 0,
        "alnum": sum(c.isalnum() for c in text) / len(text) if text else 0,
        "letters_per_token": sum(c.isalpha() for c in text) / tokens if tokens else 0,
    }


def redpajama_notice(content: str) -> str:
    """github_clean_dedup_local.py, clean_copyright_comments."""
    lines = content.split("\n")
    skip = 0
    for line in lines:
        if line.lstrip().startswith(("//", "#", "--")) or not line:
            skip += 1
        else:
            break
    head, rest = "\n".join(lines[skip:][:100]), lines[skip:][100:]
    match = re.search(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/", head)
    if match and "copyright" in match.group().lower():
        head = head[: match.start()] + head[match.end() :]
    return head + "".join("\n" + line for line in rest)
