"""Convert NeMo Curator's configurations to recipes. A configuration is a YAML file that lists
filters or configures fuzzy or semantic deduplication, or a Python script with filters, modifiers
and workflows (docs/migrate.md).

Source of rules and defaults: NVIDIA/NeMo-Curator 0.9, nemo_curator/filters, modifiers, modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from curate.lab.migrate.literal_calls import Call, calls_of
from curate.lab.migrate.migration import Migration, Remark, Setting
from curate.lab.migrate.operators import (
    NONE,
    Mapped,
    Operator,
    Rule,
    Rules,
    Theirs,
    is_constant,
    migration,
    need,
    node_line,
    several,
)
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError

TOOL = "NeMo Curator 0.9"
OWN = "a class of the script itself: write its rule as a function for the step"
# Positional parameters of the classes that apply a filter or modifier, which is the first.
WRAPPERS = {
    "ScoreFilter": ("filter_obj", "text_field", "score_field", "score_type", "invert"),
    "Filter": ("filter_fn", "filter_field", "invert"),
    "Modify": ("modifier", "text_field"),
}
# Positional parameters of classes that do not take the keys of their rule and then `lang`.
ORDERS: dict[str, tuple[str, ...]] = {
    "RepeatingTopNGramsFilter": ("n", "max_repeating_ngram_ratio", "lang"),
    "RepeatingDuplicateNGramsFilter": ("n", "max_repeating_duplicate_ngram_ratio", "lang"),
    "CommonEnglishWordsFilter": ("min_num_common_words", "stop_at_false"),
    "FastTextQualityFilter": ("model_path", "label", "alpha", "seed"),
    "UnicodeReformatter": ("config",),
    **dict.fromkeys(("FuzzyDuplicatesConfig", "SemDedup", "ExactDuplicates"), ()),
}


def _limit(step: str, ours: str, key: str, default: float, **fixed: str) -> Rule:
    return Rule(step, {**fixed, ours: Theirs(key, default)})


def _limits(measure: str, name: str, least: float, most: float) -> Rule:
    lowest, highest = Theirs(f"min_{name}", least), Theirs(f"max_{name}", most)
    return Rule("ratios", {f"min.{measure}": lowest, f"max.{measure}": highest})


def _rest(value: float) -> float:
    return round(1 - value, 12)  # NeMo Curator limits the share of the other lines


def _repetition(unit: str, key: str, default: float) -> Rule:
    limit = {f"max_duplicate_{unit}": Theirs(key, default, _rest)}
    return Rule("gopher_repetition", {"variant": "datatrove", **limit})


def _replaced(*pairs: tuple[str, str]) -> tuple[Rule, ...]:
    settings = [{"pattern": pattern, "replacement": text} for pattern, text in pairs]
    return tuple(Rule("replace", each, more=i > 0) for i, each in enumerate(settings))


N_GRAMS = "the step splits punctuation from words and keeps texts of fewer than n words"
_max = partial(_limit, "ratios")
_dolma = partial(_limit, "gopher_quality", variant="dolma")  # counts as NeMo does
_n_grams = partial(_limit, "gopher_repetition", variant="datatrove")
_dclm = partial(_limit, "gopher_quality", variant="dclm")
RULES: dict[str, Rules] = {
    "NonAlphaNumericFilter": _max(
        "max.non_alphanumerics", "max_non_alpha_numeric_to_text_ratio", 0.25
    ),
    "NumbersFilter": _max("max.digits", "max_number_to_text_ratio", 0.15),
    "UrlsFilter": _max("max.urls", "max_url_to_text_ratio", 0.2),
    "WhiteSpaceFilter": _max("max.white_space", "max_white_space_ratio", 0.25),
    "ParenthesesFilter": _max("max.brackets", "max_parentheses_ratio", 0.1),
    "LongWordFilter": _max("max.longest_word", "max_word_length", 1000),
    "WordCountFilter": _limits("words", "words", 50, 100000),
    "MeanWordLengthFilter": _limits("word_length", "mean_word_length", 3, 10),
    "NumberOfLinesOfCodeFilter": _limits("lines", "lines", 10, 20000),
    "SymbolsToWordsFilter": _dclm("max_symbol_ratio", "max_symbol_to_word_ratio", 0.1),
    "BulletsFilter": _dclm("max_bullet_lines", "max_bullet_lines_ratio", 0.9),
    "EllipsisFilter": _dclm("max_ellipsis_lines", "max_num_lines_ending_with_ellipsis_ratio", 0.3),
    "WordsWithoutAlphabetsFilter": _dolma("min_alpha_words", "min_words_with_alphabets", 0.8),
    "CommonEnglishWordsFilter": _dolma("min_stop_words", "min_num_common_words", 2),
    "PunctuationFilter": Rule(
        "fineweb_quality",
        {"min_end_marks": Theirs("max_num_sentences_without_endmark_ratio", 0.85, _rest)},
    ),
    "RepeatedLinesFilter": _repetition("lines", "max_repeated_line_fraction", 0.7),
    "RepeatedParagraphsFilter": _repetition("paragraphs", "max_repeated_paragraphs_ratio", 0.7),
    "RepeatedLinesByCharFilter": _repetition("line_chars", "max_repeated_lines_char_ratio", 0.8),
    "RepeatedParagraphsByCharFilter": _repetition(
        "paragraph_chars", "max_repeated_paragraphs_char_ratio", 0.8
    ),
    **{
        f"RepeatingTopNGramsFilter {n}": _n_grams(
            f"max_top_n_gram_chars.{n}", "max_repeating_ngram_ratio", 0.2
        )
        for n in range(2, 5)
    },
    **{
        f"RepeatingDuplicateNGramsFilter {n}": _n_grams(
            f"max_duplicate_n_gram_chars.{n}", "max_repeating_duplicate_ngram_ratio", 0.2
        )
        for n in range(5, 11)
    },
    "QuotationRemover": _replaced((r'(?s)\A(?![^\n]*"\n)"(.+)"\Z', r"\1")),
    "UrlRemover": _replaced((r"(?i)https?://\S+|www\.\S+", "")),
    "NewlineNormalizer": _replaced((r"(\n){3,}", "\n\n"), (r"(\r\n){3,}", "\r\n\r\n")),
    "MarkdownRemover": _replaced(
        (r"\*\*(.*?)\*\*", r"\1"),
        (r"\*(.*?)\*", r"\1"),
        (r"_(.*?)_", r"\1"),
        (r"\[.*?\]\((.*?)\)", r"\1"),
    ),
    "UnicodeReformatter": Rule(
        "normalize",
        {
            "form": Theirs("normalization", None, lambda form: str(form).lower()),
            "mojibake": Theirs("fix_encoding", True),
            "quotes": Theirs("uncurl_quotes", False),
            "line_ends": Theirs("fix_line_breaks", False),
        },
    ),
    "FastTextLangId": Rule(
        "language",
        {
            "model": Theirs("model_path", "lid.176.bin"),
            "threshold": Theirs("min_langid_score", 0.3),
        },
    ),
    "FastTextQualityFilter": Rule(
        "quality",
        {
            "model": Theirs("model_path", ""),
            "score_label": Theirs(
                "label", "__label__hq", lambda label: label.removeprefix("__label__")
            ),
            "pareto": Theirs("alpha", 3),
        },
    ),
    "FuzzyDuplicatesConfig": Rule(
        "dedup_minhash",
        {
            "shingle": "char",
            "ngram": Theirs("char_ngrams", 24),
            "bands": Theirs("num_buckets", 20),
            "rows": Theirs("hashes_per_bucket", 13),
            "verify": Theirs("verify", NONE),
            "survivor": "first",
        },
    ),
    "SemDedup": Rule(
        "dedup_semantic",
        {
            "embedding": Theirs(
                "embedding_model_name_or_path", "sentence-transformers/all-MiniLM-L6-v2"
            ),
            "clusters": Theirs("n_clusters", 1000),
            "epsilon": Theirs("eps_to_extract", 0.01),
            "nearest": 1,
            "survivor": Theirs(
                "which_to_keep", "hard", lambda kept: "hard" if kept == "hard" else "longest"
            ),
        },
    ),
    "ExactDuplicates": Rule(
        "dedup_exact", {"key": "text", "normalize": False, "survivor": "first"}
    ),
}
DIFFERS = {
    **dict.fromkeys(("RepeatingTopNGramsFilter", "RepeatingDuplicateNGramsFilter"), N_GRAMS),
    "WhiteSpaceFilter": "here all white space of Unicode counts",
    "NumberOfLinesOfCodeFilter": "here a newline at the end of a file makes no further line",
    "SymbolsToWordsFilter": "here hash signs and ellipses are counted, also within words",
    "BulletsFilter": "here lines that begin with •, ●, - or * count",
    "EllipsisFilter": "here lines that end in …, ... or . . . count, and not `read more`",
    "PunctuationFilter": "here the end marks of all scripts count",
    "UnicodeReformatter": "ftfy also replaces HTML entities and removes control characters",
    "FastTextQualityFilter": "it draws other numbers of the same distribution",
    "SemDedup": "give the folder of the embedding model",
}


def recognises(text: str, path: Path, document: object | None) -> bool:
    if not isinstance(document, dict):
        return document is None and path.suffix == ".py" and "nemo_curator" in text
    own = {"eps_to_extract", "pii_config", "num_buckets", "hashes_per_bucket"} & {*document}
    filters = isinstance(document.get("filters"), list) and "nemo_curator" in text
    return bool(own) or filters or "fuzzy_dedup" in str(document.get("cache_dir"))


def migrate(text: str, path: Path, document: object | None) -> Migration:
    """Return the recipe of a configuration. Raise UsageError for an entry that names no filter."""
    column = None
    operators: Iterator[Operator | Remark]
    if document is None:
        operators = _calls(text, path)
    else:
        root = read_yaml(text, str(path))[1]
        whole = need(document, dict, path, 1, "the configuration")
        if "filters" not in whole and not recognises(text, path, document):
            raise UsageError(f"{path}: neither filters nor a deduplication of NeMo Curator")
        operators = _entries(whole, path, lambda *keys: node_line(root, *keys))
        key = "text_field" if "text_field" in whole else "input_field"
        column = Setting("text", whole.get(key), f"line {node_line(root, key)}: {key}")
    results = chain.from_iterable(
        [each] if isinstance(each, Remark) else _mapped(each) for each in operators
    )
    return migration("NeMo Curator", results, None, column)


def _entries(whole: dict[str, Any], path: Path, line: Callable[..., int]) -> Iterator[Operator]:
    if "filters" not in whole:
        names = {"eps_to_extract": "SemDedup", "pii_config": "PiiModifier"}
        name = next((names[key] for key in names if key in whole), "FuzzyDuplicatesConfig")
        yield Operator(name, 1, whole, path, TOOL, {key: line(key) for key in whole})
        return
    for i, entry in enumerate(need(whole["filters"], list, path, line("filters"), "filters")):
        place = line("filters", i)
        need(entry, dict, path, place, "a filter")
        name = need(entry.get("name"), str, path, place, "name").rpartition(".")[2]
        values = need(entry.get("params"), dict, path, place, "params")
        lines = {key: line("filters", i, "params", key) for key in values}
        yield Operator(name, place, values, path, TOOL, lines)


def _calls(text: str, path: Path) -> Iterator[Operator | Remark]:
    known = {name.partition(" ")[0] for name in RULES}
    imports = re.findall(r"from nemo_curator[\w.]* import (\([^)]*\)|[^\n]+)", text)
    published = known.union(*(re.findall(r"\w+", names) for names in imports))
    calls = [c for c in calls_of(text, path, {*known, *WRAPPERS}) if isinstance(c, Call)]
    wrapped = [(call, *_inner(call, path)) for call in calls]
    inverted = [value for _, value, invert in wrapped if invert]
    for call, value, invert in wrapped:
        name = value.name if isinstance(value, Call) else str(value)
        if isinstance(value, Call) and name not in published:
            step = "python_map" if call.name == "Modify" else "python"
            yield Remark(call.line, name, f"{OWN} {step}", unmapped=False)
        elif invert:
            yield Operator(f"{call.name}(invert=True)", call.line, {}, path, TOOL)
        elif (value is call and call not in inverted) or name not in known:
            yield Operator.of_call(call, _order(name), path, TOOL)


def _order(name: str) -> tuple[str, ...]:
    return ORDERS.get(name, (*_keys(RULES.get(name, ())), "lang"))


def _keys(rules: Rules) -> tuple[str, ...]:
    return tuple(chain.from_iterable(map(Rule.keys, several(rules))))


def _inner(call: Call, path: Path) -> tuple[Any, bool]:
    """Return the filter or modifier that a call wraps, or the call itself if it wraps nothing, and
    True if what the filter drops is kept."""
    if call.name not in WRAPPERS:
        return call, False
    order = WRAPPERS[call.name]
    values = Operator.of_call(call, order, path, TOOL).values
    return values.get(order[0]), bool(values.get("invert"))


def _mapped(o: Operator) -> Mapped:
    if o.values.get("false_positive_check"):
        verify = o.values.get("jaccard_threshold", 0.8)
        o = replace(o, values={**o.values, "verify": verify})
    n_gram = f" {o.value(Theirs('n', 2))}" if "NGrams" in o.name else ""
    rules = RULES.get(o.name + n_gram)
    if rules is None:
        yield o.unmapped()
        return
    yield from o.mapped(rules)
    if o.name in DIFFERS:
        yield o.differs(DIFFERS[o.name])
    if o.values.get("lang", "en") in ("zh", "ja"):
        yield o.differs("NeMo Curator cuts words of this `lang` by a dictionary, the step does not")
    for key, value in o.values.items():
        if key not in _keys(rules) and (str(key).startswith("argument ") or not is_constant(value)):
            yield o.differs(f"the value of {key} is not in the recipe")
