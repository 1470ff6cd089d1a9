"""DCLM: the lists of functions in its `baselines/baselines_configs/*.yaml`.

DCLM has a function for each rule; a step here has all rules of a paper. Therefore adjacent
functions become one step, with the rules that are not in DCLM's list turned off. Arguments and
their defaults are those in `baselines/mappers`, at commit 361714b.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from curate.lab.migrate.migration import MappedStep, Migration, Remark, Setting
from curate.lab.migrate.operators import (
    NONE,
    REPETITION,
    Mapped,
    Operator,
    Rule,
    Theirs,
    migration,
    node_line,
    rule,
)
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError

TOOL = "DCLM"
SHARE = "read.share draws the same share before all steps, but other documents"
ABSENT = "no step does this, or not with these arguments"
# Functions that show that a list has C4's rules.
OF_C4 = ("punctuation_line_modifier", "citation_removal_modifier")
# Functions whose rules a step always applies.
ALWAYS = {
    "refinedweb_lines": ("counter_line_modifier", "line_length_modifier"),
    "c4": ("citation_removal_modifier",),
}
PLACES = {"any": "anywhere", "suffix": "line_ends", "prefix": "line_starts"}


def _of_paragraphs(name: str) -> Theirs:
    return Theirs("skip_paragraph", False, lambda skip: None if skip else REPETITION[name])


def _quality(**limits: Any) -> Rule:
    return rule("gopher_quality", variant="dclm", **limits)


def _lines(**settings: Any) -> Rule:
    return rule("refinedweb_lines", variant="dclm", **settings)


def _c4(**settings: Any) -> Rule:
    return rule("c4", variant="tfds", **settings)


MIN, MAX = Theirs("min_length", 1), Theirs("max_length", NONE)
# {a place in the list, a function, the arguments that decide what the function does: rule}. Places:
# `c4` in a list with C4's rules, `lines` after texts are split into lines, `joined` after the
# deduplication of lines.
RULES = {
    "move_url_modifier": rule("read", "the reader does it"),
    "key_name_modifier": Rule(
        "read", {"columns.text": Theirs("old_key", "content")}, "the reader does it"
    ),
    "split_lines_modifier": rule("read", "dedup_passages does it"),
    "random_sampling_filter": rule("read", SHARE, share=Theirs("keep_probability", 0.1)),
    "newline_removal_modifier": rule("newline_runs", most=Theirs("max_consecutive", 2)),
    "detect_lang_whole_page_enricher": rule("language", model="lid.176.bin"),
    "language_filter": rule(
        "language", keep=Theirs("keep_languages"), threshold=Theirs("threshold", 0)
    ),
    "classify_fasttext_hq_prob_enricher": rule(
        "quality", model=Theirs("model_filename", "model.bin")
    ),
    "quality_filter": rule("quality", threshold=Theirs("threshold", 0)),
    "page_length_filter word": _quality(min_words=MIN, max_words=MAX),
    "page_length_filter char": rule("document_length", unit="chars", min=MIN, max=MAX),
    "c4 page_length_filter sentence": _c4(min_sentences=MIN),
    "joined page_length_filter sentence": rule("dedup_passages", min_sentences=MIN),
    "word_length_filter": _quality(min_word_length=Theirs("min_length", 0), max_word_length=MAX),
    "symbol_ratio_filter": _quality(max_symbol_ratio=Theirs("max_symbol_to_word_ratio", 0.1)),
    "bullet_count_filter": _quality(max_bullet_lines=Theirs("max_bullet_start_ratio", 0.9)),
    "ellipsis_count_filter": _quality(max_ellipsis_lines=Theirs("max_ellipsis_end_ratio", 0.3)),
    "alphabetic_word_ratio_filter": _quality(
        min_alpha_words=Theirs("max_ratio", 0.2, lambda share: round(1 - share, 9))
    ),
    "stop_word_filter": _quality(min_stop_words=Theirs("min_stop_word", 2)),
    "massive_web_repetition_filters": rule(
        "gopher_repetition",
        variant="dclm",
        **REPETITION | {name: _of_paragraphs(name) for name in REPETITION if "paragraph" in name},
    ),
    "word_counter_enricher": _lines(),
    "counter_line_modifier": _lines(),
    "uppercase_ratio_line_modifier": _lines(max_uppercase=Theirs("max_ratio", 0.5)),
    "numeric_ratio_line_modifier": _lines(max_numeric=Theirs("max_ratio", 1.0)),
    "word_removal_ratio_filter": _lines(max_removed_words=Theirs("max_removed_ratio", 0.05)),
    "line_length_modifier": _lines(),
    "c4 line_length_modifier": _c4(min_words_per_line=Theirs("min_length", 0)),
    "word_length_modifier": _c4(max_word_chars=Theirs("max_length", 1000)),
    "citation_removal_modifier": _c4(),
    "punctuation_line_modifier": _c4(require_end_mark=True),
    "exact_dedup url": rule(
        "dedup_exact", key="url", normalize=Theirs("normalize", "", bool), survivor="first"
    ),
    "lines exact_dedup": rule(
        "dedup_passages",
        unit="line",
        survivor=Theirs("selection_key", "", lambda key: "c4" if key == "url" else "first"),
    ),
    "joined join_lines_modifier": rule("dedup_passages"),
    "joined within_page_dedup": rule("dedup_passages"),
}
# What a step does otherwise: {a key of `RULES`: (argument, its value on or off, difference)}.
DIFFERS = {
    "page_length_filter word": (
        "ignore_punctuation",
        False,
        "punctuation marks do not count as words",
    ),
    "stop_word_filter": ("count_unique", True, "repeated stop words count too"),
    "punctuation_line_modifier": (
        "remove_ellipses",
        False,
        "lines that end in an ellipsis are cut too",
    ),
}


def _functions(document: object | None) -> list[str]:
    sources = document if isinstance(document, list) else []
    lists = [source.get("steps") for source in sources if isinstance(source, dict)]
    entries = [entry for each in lists if isinstance(each, list) for entry in each]
    return [str(entry["func"]) for entry in entries if isinstance(entry, dict) and "func" in entry]


def recognises(text: str, path: Path, document: object | None) -> bool:
    """Return True for a list of sources whose steps name a function by `func`."""
    return bool(_functions(document))


def migrate(text: str, path: Path, document: object | None) -> Migration:
    """Return the migration of a configuration's first source. Raise UsageError for a document that
    is not a list of sources."""
    if not isinstance(document, list) or not _functions(document[:1]):
        raise UsageError(f"{path}: not a list of sources with `steps`, as DCLM's are")
    root = read_yaml(text, str(path))[1]
    places = ["c4"] if any(name in OF_C4 for name in _functions(document)) else []
    results: list[MappedStep | Remark | Setting] = []
    last_step = ""
    for i, entry in enumerate(document[0]["steps"]):
        line = node_line(root, 0, "steps", i)
        if isinstance(entry, dict) and "func" in entry:
            o = Operator(str(entry["func"]), line, entry, path, TOOL)
            joined = ["joined"] if last_step == "dedup_passages" else []
            mapped = [*o.tried(_mapped(o, [*joined, *places]))]
            last_step = next((m.step for m in mapped if isinstance(m, MappedStep)), last_step)
            results += mapped
            if o.name == "split_lines_modifier" and "lines" not in places:
                places.append("lines")
        elif entry != "commit":  # `commit` only writes intermediate results
            results.append(Remark(line, str(entry), "it names no function", unmapped=True))
    for i in range(1, len(document)):
        message = "only the steps of the first source are in the recipe"
        results.append(Remark(node_line(root, i), "source", message, unmapped=False))
    done = migration(TOOL, results)
    return replace(done, remarks=(*done.remarks, *_always(done.steps)))


def _always(steps: Iterable[MappedStep]) -> Iterator[Remark]:
    """Yield a remark on each rule that one of our steps always applies, although the DCLM
    configuration lacks the function with this rule."""
    for step in steps:
        for name in ALWAYS.get(step.step, ()):
            if name not in step.origin:
                message = f"{step.step} always applies the rule of {name}"
                yield Remark(0, step.origin, message, unmapped=False)


def _mapped(o: Operator, places: list[str]) -> Mapped:
    if o.name in ("substring_filter", "substring_line_modifier"):
        found = _substrings(o, "c4" in places)
    elif o.name == "url_substring_filter":
        found = _urls(o)
    else:
        found = _rule(o, places)
    yield from o.mapped(found) if found else [o.unmapped(ABSENT)]


def _rule(o: Operator, places: list[str]) -> Rule | None:
    """Return how to turn a function into a step, or None if no step does the same."""
    of_urls = "url" if o.values.get("content_key") == "url" else ""
    key = f"{o.name} {o.values.get('length_type', of_urls)}".strip()
    name = next((k for k in (*(f"{place} {key}" for place in places), key) if k in RULES), None)
    if name is None or o.values.get("lower_better"):
        return None
    found = RULES[name]
    limits = {"min_length", "max_length"} & o.values.keys()
    if name == "line_length_modifier" and o.values.get("min_length") == 2:
        limits -= {"min_length"}  # refinedweb_lines always has this limit
    if limits - {*found.keys()}:
        return None
    argument, used, message = DIFFERS.get(key, ("", None, ""))
    if bool(o.values.get(argument)) is used:
        found = replace(found, differs=message)
    of_langdetect = "langdetect" in str(o.values.get("key", "langdetect"))
    if key == "language_filter" and o.values.get("threshold") == 0.99 and of_langdetect:
        message = "fastText's score 0.65 replaces langdetect's 0.99 (recipe c4)"
        found = replace(found, settings={**found.settings, "threshold": 0.65}, differs=message)
    return found


def _substrings(o: Operator, of_c4: bool) -> Rule | None:
    listed, file = o.values.get("banlist"), o.values.get("banlist_from_fname")
    texts = [listed] if isinstance(listed, str) else listed
    place = PLACES.get(o.values.get("location", "any"))
    if o.values.get("exact_word") and isinstance(file, str):
        return rule("bad_words", badwords=file)
    if not isinstance(texts, list):
        return None
    if o.name == "substring_line_modifier" and o.values.get("remove_substring_only"):
        words = o.values.get("max_length")
        return _lines(short_line_words=words, **{place: texts}) if place else None
    if of_c4 and place == "anywhere" and "max_length" not in o.values:
        of_lines = o.name == "substring_line_modifier"
        return _c4(**{"policy_phrases" if of_lines else "lorem_ipsum_phrases": texts})
    return None


def _urls(o: Operator) -> Rule | None:
    file, listed = o.values.get("banlist_from_fname"), o.values.get("banlist")
    exact = o.values.get("exact_domain_match")
    if exact and isinstance(listed, list) and not file:
        differs = "subdomains of the listed domains are dropped too"
        return rule("url_filter", differs, exclude=listed)
    if not isinstance(file, str) or file.endswith((".pkl", ".pickle")):
        return None  # the words are in a pickle or in the configuration
    if exact:
        return rule("url_filter", hosts=[file])
    if o.values.get("match_substrings", True):
        differs = "all signs between letters and digits are ignored"
        return rule("url_filter", differs, banned_subwords=[file])
    count = o.value(Theirs("num_banned_substrs", 1))
    if count > 1:
        return rule("url_filter", soft_words=[file], max_soft_words=count)
    return rule("url_filter", banned_words=[file])
