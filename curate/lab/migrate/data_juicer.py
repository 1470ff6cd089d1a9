"""Data-Juicer's recipes: YAML with a list `process` of operators (docs/migrate.md).

Source of rules, defaults and patterns: modelscope/data-juicer 1.4, data_juicer/ops.
"""

from __future__ import annotations

from collections.abc import Callable
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
    migration,
    need,
    node_line,
)
from llmcurate.base.disk.yaml_file import read_yaml

TOOL = "Data-Juicer 1.4"
# Patterns whose matches are deleted or replaced, with Python's flag DOTALL.
LINKS = (
    r"(?si)\b((?:[a-z][\w-]+:(?:\/{1,3}|[a-z0-9%])|www\d{0,3}[.]|[a-z0-9.\-]+[.][a-z]{2,4}\/)"
    r"(?:[^\s()<>]+|\(([^\s()<>]+|(\([^\s()<>]+\)))*\))+"
    r"(?:\(([^\s()<>]+|(\([^\s()<>]+\)))*\)|[^\s`!()\[\]{};:\'\".,<>?«»“”‘’]))"
)
EMAILS = r"(?s)[A-Za-z0-9.\-+_]+@[a-z0-9.\-+_]+\.[a-z]+"
IPS = (
    r"(?:(?:1[0-9][0-9]|2[0-4][0-9]|25[0-5]|[1-9][0-9]|[0-9])\.){3}"
    r"(?:1[0-9][0-9]|2[0-4][0-9]|25[0-5]|[1-9][0-9]|[0-9])|(?:[\da-fA-F]{1,4}:){7}[\da-fA-F]{1,4}"
)
BIBLIOGRAPHY = (
    r"(?s)(\\appendix|\\begin\{references\}|\\begin\{REFERENCES\}|\\begin\{thebibliography\}|"
    r"\\bibliography\{.*\}).*$"
)
WHITE_SPACE = (
    "\t\xa0\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f"
    "\u205f\u3000\u200b\u200c\u200d\u2060\ufffc\x84"
)
PUNCTUATION = {  # as in Data-Juicer, the full-width digit one becomes a quotation mark
    **dict(zip("，。、∶：？！（）；–～’´━〈〉【】％►", ",.,::?!();-~''-<>[]%-", strict=True)),
    **dict.fromkeys("„”“«»１」「《》", '"'),
    **{"—": " - ", "．": ". ", "…": "..."},
}


def _pattern(value: str) -> str:
    """Return `value` as a regular expression with Data-Juicer's flag DOTALL. If the value is
    written as `r'...'`, the r and the quotation marks are removed."""
    if len(value) > 2 and value[:2] in ("r'", 'r"') and value[-1] == value[1]:
        value = value[2:-1]
    return value if value.startswith("(?s") else f"(?s){value}"


def _texts(values: object) -> list[str]:
    """Return values as the step column_filter writes them: true for Python's True."""
    listed = values if isinstance(values, list) else [values]
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in listed]


def _ratio(
    measure: str, least: float, most: float = NONE, unit: str = "ratio", **more: Theirs
) -> Rule:
    lowest, highest = Theirs(f"min_{unit}", least), Theirs(f"max_{unit}", most)
    return Rule("ratios", {f"min.{measure}": lowest, f"max.{measure}": highest, **more})


def _listed(kind: str, least: float, most: float) -> Rule:
    return Rule(
        "listed_words",
        {
            "words": Theirs("lang", "en", lambda lang: f"{kind}.{lang}.txt"),
            "min": Theirs("min_ratio", least),
            "max": Theirs("max_ratio", most),
        },
        f"give the path of your list; Data-Juicer downloads its own, {kind}.json",
    )


def _replaced(pattern: str | None) -> Rule:
    return Rule(
        "replace",
        {"pattern": Theirs("pattern", pattern, _pattern), "replacement": Theirs("repl", "")},
    )


def _characters(o: Operator) -> str:
    characters = o.value(Theirs("chars_to_remove", "◆●■►▼▲▴∆▻▷❖♡□"))
    return f"[{'|'.join(characters)}]"  # as in Data-Juicer, the bar is removed, too


def _not_chinese(o: Operator) -> str:
    kept = {
        "keep_alphabet": "A-Za-z",
        "keep_number": "0-9",
        "keep_punc": ".， ,\\-。%《*》/•、&＆(—)（+）：？!！“”·",
    }
    others = "".join(signs for key, signs in kept.items() if o.value(Theirs(key, True)))
    return f"[^\u4e00-\u9fa5{others}]+"


def _tables(o: Operator) -> str:
    """Return a pattern for two or more lines in a row with equally many columns."""
    columns = range(o.value(Theirs("min_col", 2)), o.value(Theirs("max_col", 20)) + 1)
    rows = (rf"(?:\S+?(?:[ |\t]\S+?){{{n - 1}}}\n+){{2,}}" for n in columns)
    return rf"(?<=\n)(?:{'|'.join(rows)})"


def _near(step: str, window: int, **settings: Theirs) -> Rule:
    units = {"space": "word", "character": "char"}
    return Rule(
        step,
        {
            "shingle": Theirs("tokenization", "space", lambda unit: units.get(unit, unit)),
            "ngram": Theirs("window_size", window),
            **settings,
            "normalize": Theirs("ignore_pattern", "", lambda p: "datatrove" if p else "lower"),
            "survivor": "first",
        },
        "the hash functions are others, so pairs near the limit may be decided differently; case is"
        " ignored and, for any `ignore_pattern`, signs, accents and the values of digits, too",
    )


RULES: dict[str, Rules] = {
    "alphanumeric_filter": _ratio("alphanumerics", 0.25),
    "special_characters_filter": _ratio("special_characters", 0.0, 0.25),
    "character_repetition_filter": _ratio(
        "char_repetition", 0.0, 0.5, char_ngram=Theirs("rep_len", 10)
    ),
    "word_repetition_filter": _ratio("word_repetition", 0.0, 0.5, word_ngram=Theirs("rep_len", 10)),
    "text_length_filter": _ratio("characters", 10, unit="len"),
    "words_num_filter": _ratio("stripped_words", 10, unit="num"),
    "average_line_length_filter": _ratio("line_length", 10, unit="len"),
    "maximum_line_length_filter": _ratio("longest_line", 10, unit="len"),
    "flagged_words_filter": _listed("flagged_words", 0.0, 0.045),
    "stopwords_filter": _listed("stopwords", 0.3, 1.0),
    "specified_field_filter": Rule(
        "column_filter",
        {
            "column": Theirs("field_key", ""),
            "keep": Theirs("target_value", None, _texts),
        },
    ),
    "specified_numeric_field_filter": Rule(
        "column_filter",
        {
            "column": Theirs("field_key", ""),
            "min": Theirs("min_value", -NONE),
            "max": Theirs("max_value", NONE),
        },
    ),
    "language_id_score_filter": Rule(
        "language",
        {
            "model": "lid.176.bin",
            "keep": Theirs("lang", None, lambda lang: lang or None),
            "threshold": Theirs("min_score", 0.8),
        },
        "its model gets the text in lower case",
    ),
    "perplexity_filter": Rule(
        "perplexity",
        {
            "model": Theirs("lang", "en", lambda lang: f"{lang}.arpa.bin"),
            "least": Theirs("min_ppl", -NONE),
            "most": Theirs("max_ppl", 1500),
        },
        "give the path of CCNet's model; CCNet normalises texts before it scores them, and"
        " Data-Juicer does not",
    ),
    "clean_email_mapper": _replaced(EMAILS),
    "clean_links_mapper": _replaced(LINKS),
    "clean_ip_mapper": _replaced(IPS),
    "replace_content_mapper": _replaced(None),
    "remove_bibliography_mapper": _replaced(BIBLIOGRAPHY),
    "punctuation_normalization_mapper": Rule("replace", {"characters": PUNCTUATION}),
    "whitespace_normalization_mapper": (
        Rule("replace", {"pattern": r"\A\s+|(?<!\s)\s+\Z"}),
        Rule("replace", {"characters": dict.fromkeys(WHITE_SPACE, " ")}, more=True),
    ),
    "fix_unicode_mapper": Rule(
        "normalize",
        {
            "form": Theirs("normalization", "NFC", lambda form: form.lower() or "nfc"),
            **{"mojibake": True, "line_ends": True, "quotes": True},
        },
        "ftfy also replaces HTML entities, ligatures and full-width letters, and removes"
        " control characters",
    ),
    "clean_copyright_mapper": Rule("license_notice", {"variant": "redpajama"}),
    "remove_comments_mapper": (
        Rule("replace", {"pattern": r"(?m)[^\\]%.+$"}),
        Rule("replace", {"pattern": r"(?m)^%.*\n?"}, more=True),
    ),
    "random_selector": Rule(
        "read",
        {"share": Theirs("select_ratio", NONE)},
        "read.share draws the same share before all steps, but other documents",
    ),
    "document_deduplicator": Rule(
        "dedup_exact",
        {"key": "text", "normalize": Theirs("lowercase", False), "survivor": "first"},
        "it ignores white space at both ends, and with `ignore_non_character` signs and digits",
    ),
    "document_minhash_deduplicator": _near(
        "dedup_minhash",
        5,
        threshold=Theirs("jaccard_threshold", 0.7),
        permutations=Theirs("num_permutations", 256),
        bands=Theirs("num_bands", NONE),
        rows=Theirs("num_rows_per_band", NONE),
    ),
    "document_simhash_deduplicator": _near(
        "dedup_simhash", 6, max_distance=Theirs("hamming_distance", 4)
    ),
}

# Operators that remove the matches of a pattern made from their settings.
PATTERNS: dict[str, Callable[[Operator], str]] = {
    "remove_specific_chars_mapper": _characters,
    "remove_non_chinese_character_mapper": _not_chinese,
    "remove_table_text_mapper": _tables,
}


def recognises(text: str, path: Path, document: object | None) -> bool:
    return isinstance(document, dict) and "process" in document and "steps" not in document


def migrate(text: str, path: Path, document: object | None) -> Migration:
    """Return the recipe of a configuration. Raise UsageError for an entry that names no
    operator."""
    root = read_yaml(text, str(path))[1]
    whole = need(document, dict, path, 1, "the configuration")

    def line(*keys: str | int) -> int:
        return node_line(root, *keys)

    def setting(key: str) -> Setting:
        value = whole.get(key)
        first = value[0] if isinstance(value, list) and value else value
        return Setting("input", first, f"line {line(key)}: {key}")

    steps: list[Any] = []
    for i, entry in enumerate(need(whole.get("process"), list, path, line("process"), "process")):
        place = line("process", i)
        named = {entry: None} if isinstance(entry, str) else entry
        for name, values in need(named, dict, path, place, "an operator").items():
            values = need(values, dict, path, place, f"settings of {name}")
            lines = {key: line("process", i, name, key) for key in values}
            steps += _mapped(Operator(str(name), place, values, path, TOOL, lines))
    return migration("Data-Juicer", steps, setting("dataset_path"), setting("text_keys"))


def _mapped(o: Operator) -> Mapped:
    name = o.name.removeprefix("ray_").replace("bts_", "document_")
    tokens = o.values.get("tokenization") is True
    if o.values.get("reversed_range") or o.values.get("min_closed_interval") is False:
        yield o.unmapped("its range is reversed or excludes its ends, which no step here can do")
    elif tokens and name == "alphanumeric_filter":
        yield o.unmapped("it divides by the number of a model's tokens, which no step here counts")
    elif name == "random_selector" and o.values.get("select_num"):
        yield o.unmapped("it draws a number of documents; set `share` in the section `read`")
    elif name == "replace_content_mapper" and not isinstance(o.values.get("pattern"), str):
        yield o.unmapped("it has no pattern or several patterns: write a step `replace` for each")
    elif name.startswith("specified_") and "." in str(o.values.get("field_key")):
        yield o.unmapped("column_filter reads columns, not fields inside a column")
    elif name in PATTERNS:
        yield from o.mapped(Rule("replace", {"pattern": PATTERNS[name](o)}))
        if name == "remove_table_text_mapper":
            yield o.differs("it removes tables of two columns first, the step from top to bottom")
    elif name not in RULES:
        yield o.unmapped()
    else:
        yield from o.mapped(RULES[name])
        if tokens:
            yield o.differs("it counts a model's tokens; the step here counts words")
