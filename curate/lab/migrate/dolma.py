"""Migrate Dolma's configurations of taggers, mixer and deduper: YAML or JSON (docs/migrate.md).

Dolma's mixer drops documents by attributes that taggers and the deduper wrote before. Our steps
measure and decide at once, so each condition of the mixer becomes a step that measures the
condition's attribute and applies its limit. Source: allenai/dolma 1.2, python/dolma/taggers,
src/deduper.rs, configs/dolma-v1_6, the mixer's manual.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from curate.lab.migrate.migration import MappedStep, Migration, Remark, Setting
from curate.lab.migrate.operators import (
    NONE,
    Mapped,
    Operator,
    Rule,
    Theirs,
    migration,
    need,
    node_line,
)
from llmcurate.base.disk.yaml_file import read_yaml

TOOL = "Dolma 1.2"
# A condition on the score of an attribute's first span, in JSONPath or in jq.
CONDITION = re.compile(
    r"(?:@\.|^\(\.attributes\.)\"?([\w-]+)\"?(?:\[0\]\[2\]| \|.*\.\[0\]\[2\])"
    r"\s*([<>]=?)\s*(-?\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?:\)\]| else false end\))$"
)
LISTED = re.compile(r"\(@\['([\w-]+)'\](?: && !@\['([\w-]+)'\])?\)\]$")
LEAST_RATE = 1e-9  # lowest rate in the step dedup_bloom; Dolma has rates down to 1e-15
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
BELOW, ABOVE = Theirs("<"), Theirs(">")  # drop documents below or above the limit
FEWER, MORE = Theirs("<", None, math.ceil), Theirs(">", None, math.floor)  # the same for counts


def _gopher(kind: str, **settings: Theirs) -> Rule:
    return Rule(f"gopher_{kind}", {"variant": "dolma", **settings})


def _n_grams(ours: str) -> Callable[[str], Rule]:
    return lambda n: Rule("gopher_repetition", {"variant": "dolma", f"{ours}.{n}": ABOVE})


def _jigsaw(unit: str, limit: Theirs, action: str) -> Callable[[str], Rule]:
    names = {"unit": unit, "threshold": limit, "action": action}
    differs = "give the path of Dolma's fastText model"
    return lambda label: Rule("tagger", {"model": f"jigsaw-{label}.bin", **names}, differs)


def _c4(**settings: object) -> Rule:
    return Rule("c4", settings, "the step c4 always drops pages with a curly brace")


def _length(tagger: str) -> Rule:
    how = {"char": {}, "uniseg": {"words": "unicode"}, "whitespace": {"words": "split"}}[tagger]
    unit = {"unit": "words" if how else "chars", **how}
    differs = {  # dolma/taggers/length.py
        "char": "",
        "uniseg": "its tagger also counts runs of signs as words",
        "whitespace": "its tagger also counts runs of signs, and one more in each paragraph",
    }[tagger]
    return Rule("document_length", {**unit, "min": FEWER, "max": MORE}, differs)


def _of_bloom(unit: str, key: str = "text") -> Rule:
    if unit == "document":
        return Rule("dedup_bloom", {"mode": "dolma-document", "key": key})
    differs = "the step cuts duplicate paragraphs; this condition drops their documents"
    return Rule("dedup_bloom", {"mode": "dolma-paragraph"}, differs)


def _pii(kind: str) -> Rule:
    found = {"replacement": "token", f"{kind.partition('_')[0].lower()}s": True}
    return Rule("pii", found, f"the replacement here is |||{kind}|||, without blanks around it")


def _short_lines(score: float) -> str:
    return rf"(?m)^(?:[^\w\n]*\w+){{0,{int(-score)}}}[^\w\n]*(?:\n|\Z)"


DOCUMENTS = Rule(
    "bloom_file",
    {"file": "evaluation.bloom", "key": "text"},
    "write the filter of the evaluation data with `llmcurate export --format bloom`",
)
PARAGRAPHS = Rule(
    "decontaminate",
    {"evals": "evaluation.txt", "mode": "overlap", "threshold": 1.0},
    "give the evaluation data, one paragraph per line; paragraphs of 8 words or more are searched"
    " for anywhere in a document, not only as whole paragraphs",
)
CUT = {"action": "cut", "context": 0, "min_piece": 0}
# {pattern for the end of an attribute's name: its rule, or a function from the pattern's group to
# the rule}. The first pattern that matches applies.
Table = dict[str, Rule | Callable[[str], Rule]]
ATTRIBUTES: Table = {
    r"gopher_v\d__word_count": _gopher("quality", min_words=FEWER, max_words=MORE),
    r"median_word_length": _gopher("quality", min_word_length=BELOW, max_word_length=ABOVE),
    r"symbol_to_word_ratio": _gopher("quality", max_symbol_ratio=ABOVE),
    r"fraction_of_words_with_alpha_character": _gopher("quality", min_alpha_words=BELOW),
    r"required_word_count": _gopher("quality", min_stop_words=FEWER),
    r"fraction_of_lines_starting_with_bullet_point": _gopher("quality", max_bullet_lines=ABOVE),
    r"fraction_of_lines_ending_with_ellipsis": _gopher("quality", max_ellipsis_lines=ABOVE),
    r"fraction_of_duplicate_lines": _gopher("repetition", max_duplicate_lines=ABOVE),
    r"characters_in_duplicate_lines": _gopher("repetition", max_duplicate_line_chars=ABOVE),
    r"most_common_([2-4])grams?": _n_grams("max_top_n_gram_chars"),
    r"duplicate_([5-9]|10)grams": _n_grams("max_duplicate_n_gram_chars"),
    r"repetitions_\w+__doc_max_score_repetition": Rule(
        "periodic_repetition", {"min_times": Theirs(">", None, math.ceil)}
    ),
    r"pii_\w+__doc_count": Rule(
        "pii",
        {"replacement": "token", "emails": True, "phones": True, "ips": True, "max_found": MORE},
        "the step also replaces what it counts",
    ),
    r"(char|uniseg)_length\w*__(?:length|document)": _length,
    r"(whitespace)_tokenizer\w*__(?:length|document)": _length,
    r"(?:ft_lang_id|cld2)_en\w*": Rule(
        "language",
        {"model": "lid.176.bin", "keep": ["en"], "threshold": BELOW},
        "fastText scores whole documents here; Dolma has taggers for paragraphs and for CLD2",
    ),
    r"jigsaw_(nsfw|hatespeech)_document\w*": _jigsaw("document", ABOVE, "drop"),
    r"(\w*(?:decontamination|paloma)\w*)": lambda name: DOCUMENTS if "doc" in name else PARAGRAPHS,
    r"bff_duplicate_(doc|url)\w*": lambda key: _of_bloom(
        "document", "url" if key == "url" else "text"
    ),
    r"documents_bff_duplicates": _of_bloom("document"),
    r"bff_duplicate_paragraph\w*": _of_bloom("paragraph"),
    r"c4_v\d__has_curly_brace": Rule("c4"),
    r"c4_v\d__has_lorem_ipsum": _c4(lorem_ipsum_phrases=["lorem ipsum"]),
    r"c4_v\d__has_naughty_word": _c4(badwords="ldnoobw:en"),
}
SPANS: Table = {
    r"(EMAIL_ADDRESS|PHONE_NUMBER|IP_ADDRESS)": _pii,
    r"\w*decontamination\w*": replace(PARAGRAPHS, settings={**PARAGRAPHS.settings, **CUT}),
    r"bff_duplicate_paragraph\w*": Rule("dedup_bloom", {"mode": "dolma-paragraph"}),
    r"jigsaw_(nsfw|hatespeech)\w*": _jigsaw("sentence", Theirs("min_score"), "cut"),
    r"negative_paragraph": Rule(
        "replace",
        {"pattern": Theirs("min_score", 0, _short_lines)},
        "Dolma counts words by UAX #29; here runs of letters and digits are counted",
    ),
    r"all_punct": Rule("replace", {"pattern": r"(?m)^[^\w\n]+(?:\n|\Z)"}),
    r"lines_with_no_ending_punctuation": _c4(require_end_mark=True),
    r"lines_with_too_few_words": _c4(min_words_per_line=3),
}


def recognises(text: str, path: Path, document: object | None) -> bool:
    kinds = {"streams", "taggers", "dedupe"}
    return isinstance(document, dict) and bool(kinds & {*document}) and "steps" not in document


def migrate(text: str, path: Path, document: object | None) -> Migration:
    """Return the recipe of a configuration. Raise UsageError for a part that cannot be read."""
    configuration = _Configuration(need(document, dict, path, 1, "the configuration"), text, path)
    source = configuration.input()
    results = [*configuration.taggers(), *configuration.deduper(), *configuration.mixer()]
    return migration("Dolma", results, source, None)


class _Configuration:
    def __init__(self, whole: dict[str, Any], text: str, path: Path) -> None:
        self.whole, self.path = whole, path
        self.root = read_yaml(text, str(path))[1]

    def part(self, kind: type, *keys: str | int) -> Any:
        """Return the list or mapping (`kind`) at the path `keys`, or an empty one if missing."""
        value: Any = self.whole
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else value[key]
        return need(value, kind, self.path, self.line(*keys), str(keys[-1]))

    def line(self, *keys: str | int) -> int:
        return node_line(self.root, *keys)

    def operator(self, name: str, values: dict[str, Any], *keys: str | int) -> Operator:
        lines = {key: self.line(*keys, key) for key in values}
        return Operator(name, self.line(*keys), values, self.path, TOOL, lines)

    def input(self) -> Setting:
        files, line = self.part(list, "documents"), self.line("documents")
        for i, stream in enumerate(self.part(list, "streams")):
            need(stream, dict, self.path, self.line("streams", i), "a stream")
            files = [*files, *self.part(list, "streams", i, "documents")]
            line = line or self.line("streams", i, "documents")
        return Setting("input", list(map(str, files)), f"line {line}: documents")

    def taggers(self) -> Mapped:
        for i, name in enumerate(self.part(list, "taggers")):
            o = self.operator(str(name), {}, "taggers", i)
            if "lang_id" in o.name:
                yield from o.mapped(Rule("language", {"model": "lid.176.bin"}))
            else:
                yield o.needless("a tagger only measures; the mixer's configuration has the limits")

    def deduper(self) -> Mapped:
        if "dedupe" not in self.whole:
            return
        kind = "documents" if "documents" in self.part(dict, "dedupe") else "paragraphs"
        part = self.part(dict, "dedupe", kind)
        o = self.operator("bloom_filter", self.part(dict, "bloom_filter"), "bloom_filter")
        key = str(part.get("key", "$.text")).rpartition(".")[2]
        ngrams = need(part.get("by_ngram"), dict, self.path, o.line, "by_ngram")
        settings: dict[str, object] = {
            "mode": f"dolma-{kind[:-1]}",
            "expected": Theirs("estimated_doc_count", NONE),
            "false_positives": Theirs(
                "desired_false_positive_rate", NONE, lambda rate: max(rate, LEAST_RATE)
            ),
        }
        differs = ""
        if kind == "documents":
            settings["key"] = key
        elif ngrams:
            differs = "every n-gram is compared here, not only one in `stride`"
            settings |= {"mode": "paragraph", "ngram": ngrams.get("ngram_length")}
            settings["threshold"] = ngrams.get("overlap_threshold", 1.0)
        if kind == "documents" and key not in ("text", "url"):
            yield o.unmapped(f"documents are compared here by text or url, not by {key}")
        elif o.value(Theirs("read_only", False)):
            yield from o.mapped(DOCUMENTS if kind == "documents" else PARAGRAPHS)
        else:
            yield from o.mapped(Rule("dedup_bloom", settings, differs))

    def mixer(self) -> Iterator[MappedStep | Remark | Setting]:
        streams: dict[str, list[MappedStep | Remark | Setting]] = {}  # results by stream
        for i, stream in enumerate(self.part(list, "streams")):
            parts = [stream.get("filter"), stream.get("span_replacement")]
            same = json.dumps(parts, sort_keys=True, default=str)
            if same not in streams:
                streams[same] = [*self.conditions(i), *self.spans(i)]
                for each in streams[same]:
                    if len(streams) == 1:
                        yield each
                    elif isinstance(each, MappedStep) and each.stands_for:
                        message = "another stream has other steps: migrate it from its own file"
                        yield Remark(self.line("streams", i), each.origin, message, unmapped=True)

    def conditions(self, i: int) -> Iterator[MappedStep | Remark | Setting]:
        for kind in ("include", "exclude"):
            keys = ("streams", i, "filter", kind)
            conditions = self.part(list, *keys) if self.part(dict, *keys[:3]) else []
            for k, text in enumerate(conditions):
                o = self.operator(kind, {}, *keys, k)
                if kind == "include" and text == "$.id":
                    yield o.needless("it keeps all documents")
                elif kind == "include" and len(conditions) > 1:
                    yield o.unmapped("in Dolma one of its conditions is enough; here all must hold")
                else:
                    yield from _condition(o, str(text))

    def spans(self, i: int) -> Mapped:
        for k, span in enumerate(self.part(list, "streams", i, "span_replacement")):
            keys = ("streams", i, "span_replacement", k)
            values = need(span, dict, self.path, self.line(*keys), "span_replacement")
            name = str(values.get("span", "")).rpartition("attributes")[2].strip(".?")
            rule = _rule(SPANS, name)
            o = self.operator(name, values, *keys)
            o.value(Theirs("min_score", 0.0))  # must be a number
            cuts = rule and (values.get("replacement") == "" or rule.step == "pii")
            yield from o.mapped(rule) if rule and cuts else iter([o.unmapped()])


def _rule(table: Table, name: str) -> Rule | None:
    for end, rule in table.items():
        if match := re.search(rf"(?:^|_|\b){end}$", name):
            return rule if isinstance(rule, Rule) else rule(match[1])
    return None


def _condition(o: Operator, text: str) -> Iterator[MappedStep | Remark | Setting]:
    if match := LISTED.search(text):
        names = [(name or "").removesuffix("__url").rpartition("__")[2] for name in match.groups()]
        allow = {"allow": f"@{names[1]}.txt"} if names[1] else {}
        differs = "give the path of the list"
        yield from o.mapped(Rule("url_filter", {"hosts": f"{names[0]}.txt", **allow}, differs))
        return
    match = CONDITION.search(text)
    if match is None:
        yield o.unmapped()
        return
    # An `include` keeps the documents that match, so the rule drops by the opposite condition.
    sign, limit = OPPOSITE[match[2]] if o.name == "include" else match[2], float(match[3])
    side = sign[0]
    if "random_number" in match[1]:
        share = limit if side == ">" else round(1 - limit, 12)
        yield Setting("share", share, f"line {o.line}: {match[1]}")
        yield o.needless("`share` in the section `read` samples as many documents, but others")
        return
    if sign[1:]:
        limit = math.nextafter(limit, -math.inf if side == ">" else math.inf)
    o = replace(o, name=match[1], values={side: int(limit) if limit == int(limit) else limit})
    rule = _rule(ATTRIBUTES, o.name)
    settings = rule.settings.values() if rule else ()
    limits = [theirs.key for theirs in settings if isinstance(theirs, Theirs)]
    if rule and (side in limits or not limits):
        yield from o.mapped(rule)
    else:
        yield o.unmapped()
