"""text-dedup's configurations: TOML of today's version, and a shell script with command lines of
earlier ones, `python -m text_dedup.minhash --path ...` (docs/migrate.md).

Source of rules and defaults: ChenghaoMou/text-dedup, 0.4 (utils/args.py), and its main branch of
2026 (config/algorithms).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.lab.migrate.migration import Migration, Setting
from curate.lab.migrate.operators import (
    NONE,
    Mapped,
    Operator,
    Rule,
    Rules,
    Theirs,
    at,
    migration,
    need,
)
from llmcurate.base.errors import UsageError

OLD, NEW = "text-dedup 0.4", "text-dedup of 2026"
COMMAND = re.compile(r"\bpython3?[ \t]+-m[ \t]+text_dedup\.(\w+)")
HUB = re.compile(r"\w[\w.-]{,95}/\w[\w.-]{,95}")  # a data set ORG/NAME
SUFFIXES = {".json", ".jsonl", ".parquet", ".csv", ".txt", ".arrow", ".gz", ".zst"}


SHORT = "it keeps only the first document with fewer than `min_length` words"
HASHES = (
    "the hash functions are others, so pairs near `bit_diff` may be decided differently; found"
    " pairs are not compared again (check_false_positive)"
)


def _rules(o: Operator) -> Rules:
    """Return the rules that turn a deduplication algorithm of text-dedup into our steps. In
    text-dedup 0.4, some settings have shorter names than in text-dedup of 2026."""
    old = o.tool == OLD
    ngram = "ngram" if old else "ngram_size"
    settings: dict[str, object]
    match o.name.removesuffix("_spark"):
        case "minhash":
            settings = {
                "shingle": "word",
                "ngram": Theirs(ngram, 5 if old else 1),
                "permutations": Theirs("num_perm", 250 if old else NONE),
                "threshold": Theirs("threshold", 0.7),
                "bands": Theirs("b" if old else "bands", NONE),
                "rows": Theirs("r" if old else "rows", NONE),
                "false_positive_weight": Theirs("false_positive_weight", NONE),
                "verify": Theirs("verify", NONE),
                "survivor": "first",
            }
            least = {"unit": "words", "words": "unicode", "min": Theirs("min_length", 5)}
            if old:
                return Rule("dedup_minhash", settings, SHORT)
            return Rule("document_length", least, more=True), Rule("dedup_minhash", settings)
        case "simhash":
            settings = {
                "shingle": "char" if old else "word",
                "ngram": Theirs(ngram, 3),
                "max_distance": Theirs("bit_diff", 3),
                "survivor": "first",
            }
            return Rule("dedup_simhash", settings, HASHES)
        case "suffix_array":
            length = Theirs("k" if old else "length_threshold", 100)
            settings = {"unit": "bytes", "threshold": length, "keep": "none", "min_chars": 1}
            return Rule("dedup_suffix_array", settings)
        case "bloom_filter":
            rate = Theirs("error_rate", 1e-6 if old else NONE)
            settings = {"expected": Theirs("max_elements", NONE), "false_positives": rate}
            return Rule("dedup_bloom", {"mode": "dolma-document", "key": "text", **settings})
        case "exact_hash":
            return Rule("dedup_exact", {"key": "text", "normalize": False, "survivor": "first"})
        case "ccnet":
            return Rule("dedup_passages", {"unit": "paragraph", "keep": "one"})
    return ()


def recognises(text: str, path: Path, document: object | None) -> bool:
    if document is None:
        return COMMAND.search(text) is not None
    return isinstance(document, dict) and "algorithm_name" in str(document.get("algorithm"))


def migrate(text: str, path: Path, document: object | None) -> Migration:
    """Return the recipe of a configuration. Raise UsageError for a part that cannot be read."""
    operators = [*(_commands(text, path) if document is None else _table(text, path, document))]
    if not operators:
        raise UsageError(f"{path}: it has no command `python -m text_dedup.ALGORITHM`")
    values, lines = operators[0].values, operators[0].lines
    column = "column" if document is None else "text_column"
    return migration(
        "text-dedup",
        (*_source(operators[0]), *(each for operator in operators for each in _mapped(operator))),
        None,
        Setting("text", values.get(column), f"line {lines.get(column, 0)}: {column}"),
    )


def _source(o: Operator) -> Mapped:
    """Yield the recipe's input and the settings of its section `read`. A path ORG/NAME is a data
    set of the hub, unless it is on this machine or has the suffix of a file."""
    place, files = str(o.values.get("path") or ""), o.values.get("data_files")
    hub = HUB.fullmatch(place) and not (
        "local" in o.values or Path(place).exists() or Path(place).suffix in SUFFIXES
    )

    def setting(name: str, key: str, value: object) -> Setting:
        return Setting(name, value, f"line {o.lines.get(key, 0)}: {key}")

    if hub:
        root, listed = f"hf://datasets/{place}", [files] if isinstance(files, str) else files
        yield setting("input", "path", [f"{root}/{file}" for file in listed] if listed else root)
    else:
        key = "data_files" if files else "path"
        yield setting("input", key, o.values.get(key))
    for ours, key in (("config", "name"), ("split", "split")):
        if hub and o.values.get(key):
            yield setting(ours, key, str(o.values[key]))
        elif o.values.get(key) not in (None, "", "train", "default"):
            yield o.differs(f"{key} is read only for a data set of the hub, ORG/NAME")


def _table(text: str, path: Path, document: object) -> Iterator[Operator]:
    whole = need(document, dict, path, 0, "the configuration")
    values = dict(need(whole.get("algorithm"), dict, path, 0, "algorithm"))
    reading = need(whole.get("input"), dict, path, 0, "input")
    source = need(reading.get("read_arguments"), dict, path, 0, "read_arguments")
    values |= {key: source.get(key) for key in ("path", "name", "split", "data_files")}
    if str(reading.get("input_type")).startswith("local"):
        values["local"] = True
    if values.get("check_false_positive") is True:
        values["verify"] = values.get("threshold")
    name = need(values.get("algorithm_name"), str, path, 0, "algorithm_name")
    rows = enumerate(text.split("\n"), 1)
    lines = {row.partition("=")[0].strip(): number for number, row in rows}
    lines.setdefault("verify", lines.get("check_false_positive", 0))
    yield Operator(name, lines.get("algorithm_name", 0), values, path, NEW, lines)


def _commands(text: str, path: Path) -> Iterator[Operator]:
    """Yield the command lines of a script with their options. The script is not run."""
    for start in COMMAND.finditer(text):
        line = text.count("\n", 0, start.start()) + 1
        command = re.match(r"(?:\\\r?\n|[^\n;&|])*", text[start.end() :])
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for i, row in enumerate(command[0].split("\n") if command else []):
            try:
                words = shlex.split(row.rstrip("\r\\"), comments=True)
            except ValueError as error:
                raise UsageError(f"{at(path, line + i)}: {error}") from None
            for word in words:
                if word.startswith("--"):
                    key, _, word = word[2:].partition("=")
                    lines[key] = line + i
                if lines:
                    values[[*lines][-1]] = int(word) if word.isdigit() else word
        yield Operator(start[1], line, values, path, OLD, lines)


def _mapped(o: Operator) -> Mapped:
    if o.values.get("f", 64) in (64, "64") and (rules := _rules(o)):
        return o.mapped(rules)
    return iter([o.unmapped("no step here has its algorithm with fingerprints of this size")])
