"""DataTrove: Python scripts that construct the blocks of a pipeline.

Parameters and their defaults are those of DataTrove 0.10's classes in `datatrove.pipeline`. The
blocks become steps in the order of the script.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from curate.lab.migrate.literal_calls import Call, Expression, calls_of
from curate.lab.migrate.migration import MappedStep, Migration, Remark, Setting
from curate.lab.migrate.operators import (
    NONE,
    REPETITION,
    Mapped,
    Operator,
    Rule,
    Theirs,
    migration,
    rule,
)

TOOL = "DataTrove 0.10"
GOPHER_OFF = (None, 0)  # values that turn off Gopher's rules
POLICY_PHRASES = (
    *("terms of use", "privacy policy", "cookie policy"),
    *("uses cookies", "use of cookies", "use cookies"),
)


def _n_grams(least: int, most: int) -> Callable[[Any], dict[int, float]]:
    def change(pairs: Any) -> dict[int, float]:
        limits: dict[int, float] = dict(pairs)
        if not all(least <= n <= most for n in limits):
            raise ValueError(f"our rule has limits for n-grams of {least} to {most} words")
        return limits

    return change


def _phrases(*phrases: str) -> Callable[[bool], list[str]]:
    return lambda used: list(phrases) if used else []


def _listed(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _unit(split_sentences: bool) -> str:
    if not split_sentences:
        raise ValueError("no step compares runs of lines; dedup_passages compares single lines")
    return "sentences"


def _integrated(name: str) -> Theirs:
    return Theirs("use_integrated_lists", True, lambda used: name if used else None)


RULES = {
    "Trafilatura": rule(
        "extract",
        "the step has no time limit and keeps passages that repeat on earlier pages",
        extractor="trafilatura",
        favor=Theirs("favour_precision", True, lambda p: "precision" if p else "balanced"),
    ),
    "GopherQualityFilter": rule(
        "gopher_quality",
        variant="datatrove",
        min_words=Theirs("min_doc_words", 50),
        max_words=Theirs("max_doc_words", 100_000),
        min_word_length=Theirs("min_avg_word_length", 3),
        max_word_length=Theirs("max_avg_word_length", 10),
        max_symbol_ratio=Theirs("max_symbol_word_ratio", 0.1),
        max_bullet_lines=Theirs("max_bullet_lines_ratio", 0.9),
        max_ellipsis_lines=Theirs("max_ellipsis_lines_ratio", 0.3),
        min_alpha_words=Theirs("max_non_alpha_words_ratio", 0.8),
        min_stop_words=Theirs("min_stop_words", 2),
        stop_words=Theirs("stop_words", None, _listed),
        off=GOPHER_OFF,
    ),
    "GopherRepetitionFilter": rule(
        "gopher_repetition",
        variant="datatrove",
        max_duplicate_lines=Theirs("dup_line_frac", 0.3),
        max_duplicate_paragraphs=Theirs("dup_para_frac", 0.3),
        max_duplicate_line_chars=Theirs("dup_line_char_frac", 0.2),
        max_duplicate_paragraph_chars=Theirs("dup_para_char_frac", 0.2),
        max_top_n_gram_chars=Theirs(
            "top_n_grams", REPETITION["max_top_n_gram_chars"], _n_grams(2, 4)
        ),
        max_duplicate_n_gram_chars=Theirs(
            "dup_n_grams", REPETITION["max_duplicate_n_gram_chars"], _n_grams(5, 10)
        ),
        off=GOPHER_OFF,
    ),
    "C4QualityFilter": rule(
        "c4",
        "an apostrophe at the end of a line is no end mark, and sentences are counted by Punkt's"
        " rules instead of spaCy's",
        require_end_mark=Theirs("filter_no_terminal_punct", True),
        min_sentences=Theirs("min_num_sentences", 5),
        min_words_per_line=Theirs("min_words_per_line", 3),
        max_word_chars=Theirs("max_word_length", 1000),
        lorem_ipsum_phrases=Theirs("filter_lorem_ipsum", True, _phrases("lorem ipsum")),
        javascript_phrases=Theirs("filter_javascript", True, _phrases("javascript")),
        policy_phrases=Theirs("filter_policy", True, _phrases(*POLICY_PHRASES)),
        off=(-1,),
    ),
    "C4ParagraphFilter": rule("c4_paragraphs", min_paragraphs=3, min_chars=200),
    "C4BadWordsFilter": rule(
        "bad_words",
        "a hash of the URL decides which pages with bad words are kept, and pages of languages"
        " without a list pass",
        badwords="ldnoobw",
        badwords_fraction=Theirs("keep_fraction", 0.0, lambda kept: 1 - kept),
        badwords_lang=Theirs("default_language", "en"),
    ),
    "FineWebQualityFilter": rule(
        "fineweb_quality",
        variant="datatrove",
        min_end_marks=Theirs("line_punct_thr", 0.12),
        max_short_lines=Theirs("short_line_thr", 0.67),
        short_line_chars=Theirs("short_line_length", 30),
        max_duplicate_chars=Theirs("char_duplicates_ratio", 0.01),
        max_newlines=Theirs("new_line_ratio", 0.3),
    ),
    "URLFilter": rule(
        "url_filter",
        domains=_integrated("ut1"),
        urls=_integrated("ut1"),
        banned_words=_integrated("datatrove"),
        soft_words=_integrated("datatrove"),
        banned_subwords=_integrated("datatrove"),
        max_soft_words=Theirs("soft_word_threshold", 2),
        exclude=Theirs("extra_domains", None, _listed),
    ),
    "LanguageFilter": rule(
        "language",
        model=Theirs("backend", "ft176", {"ft176": "lid.176.bin"}.get),
        keep=Theirs("languages", None, _listed),
        threshold=Theirs("language_threshold", 0.65),
    ),
    "PIIFormatter": rule(
        "pii",
        "public IPv6 addresses are replaced too; replacements are addresses reserved for examples",
        replacement="example",
        emails=Theirs("remove_emails", True),
        ips=Theirs("remove_ips", True),
    ),
    "FTFYFormatter": rule(
        "normalize",
        "entities, terminal escapes and control characters stay as they are",
        mojibake=Theirs("fix_encoding", True),
        quotes=Theirs("uncurl_quotes", False),
        line_ends=Theirs("fix_line_breaks", False),
        form=Theirs("normalization", None, str.lower),
    ),
    "MinhashDedupSignature": rule(
        "dedup_minhash",
        "the longest document of a cluster is kept instead of an arbitrary one",
        shingle="word",
        normalize="datatrove",
        ngram=Theirs("n_grams", 5),
        bands=Theirs("num_buckets", 14),
        rows=Theirs("hashes_per_bucket", 8),
        seed=Theirs("seed", 1),
    ),
    "SentenceDedupSignature": rule(
        "dedup_passages",
        "a sentence ends at the end of its line (docs/dedup/exact.md)",
        survivor="first",
        span=Theirs("n_sentences", 3),
        unit=Theirs("split_sentences", True, _unit),
        min_words=Theirs("min_doc_words", 50),
        min_sentences=Theirs("min_num_sentences", 3),
    ),
    "SingleBloomFilter": rule(
        "dedup_bloom",
        "n-grams keep case and punctuation, and the size of the filter follows from `expected` and"
        " `false_positives`",
        mode="document",
        ngram=Theirs("n_grams", 13),
        threshold=Theirs("duplicate_threshold", 0.8),
        expected=Theirs("expected_elements", NONE),
        seed=Theirs("seed", 0),
    ),
    "ESDatasetToSequence": rule(
        "dedup_suffix_array",
        "the minimum length is an argument of deduplicate-text-datasets and not in the script; 50"
        " tokens are the minimum of Lee et al. 2022",
        unit="tokens",
        tokenizer=Theirs("tokenizer_name_or_path", "gpt2"),
        threshold=50,
        keep="none",
    ),
    "SamplerFilter": rule(
        "read",
        "read.share draws the same share before all steps, but other documents",
        share=Theirs("rate", 0.5),
        seed=Theirs("seed", 0),
    ),
    "DocumentTokenizer": rule(
        "shards",
        "`tokenizer` is a path: for a model of the hub, store its tokenizer.json there",
        tokenizer=Theirs("tokenizer_name_or_path"),
        eos=Theirs("eos_token", "", bool),
        shard_tokens=Theirs("max_tokens_per_file", 100_000_000),
        shuffle=Theirs("seed", 0),
    ),
}
# Later stages of a dedup, and other blocks that decide nothing on documents.
STAGES = {
    "MinhashDedupSignature": ("MinhashDedupBuckets", "MinhashDedupCluster", "MinhashDedupFilter"),
    "SentenceDedupSignature": ("SentenceFindDedups", "SentenceDedupFilter"),
    "ExactDedupSignature": ("ExactFindDedups", "ExactDedupFilter"),
    "UrlDedupSignature": ("UrlFindDedups", "UrlDedupFilter"),
    "ESDatasetToSequence": ("ESMergeSequences", "ESRangeRemover"),
    "DocumentTokenizer": ("DocumentTokenizerMerger", "DocumentTokenizerContextShuffler"),
}
# Positional parameters of blocks that do not take the keys of their rule in order.
ORDERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys([*STAGES, "SingleBloomFilter"], ("output_folder",)),
    **dict.fromkeys(
        ("DocumentTokenizer", "ESDatasetToSequence"), ("output_folder", "tokenizer_name_or_path")
    ),
    "C4QualityFilter": ("exclusion_writer", "split_paragraph", "remove_citations"),
    "FineWebQualityFilter": ("exclusion_writer", "line_punct_thr"),
    "URLFilter": ("soft_word_threshold", "extra_domains", "extra_urls"),
    "C4BadWordsFilter": (
        *("keep_fraction", "fail_on_missing_language", "seed", "default_language"),
    ),
    "LanguageFilter": ("languages", "language_threshold"),
    "LambdaFilter": ("filter_function",),
    "HuggingFaceDatasetReader": ("dataset", "dataset_options"),
}
# Parameters that decide nothing on documents.
NO_MATTER = {"exclusion_writer", "output_folder", "local_working_dir", "save_filename"}
NO_MATTER |= {"hash_config", "finder_workers"}
# Parameters without a setting here, with the value that the step always uses.
ALWAYS = {
    **{"split_paragraph": True, "remove_citations": True, "filter_curly_bracket": True},
    **{"line_punct_exclude_zero": False, "min_words_to_remove_span": 0},
    **{"include_images": False, "deduplicate": True, "timeout": 1},
    **{"label_only": False, "only_dedup_in_index": True},
    **{"fail_on_missing_language": True, "only_remove_public_ips": True},
}
READER = Rule(
    "read",
    {
        "columns.text": Theirs("text_key"),
        "columns.id": Theirs("id_key"),
        "limit": Theirs("limit", NONE, lambda limit: limit if limit > 0 else None),
        "split": Theirs("split"),
        "config": Theirs("name"),
    },
    more=True,
)
FILES = {  # lists of URLFilter, with the setting for a file of their entries
    **{"extra_urls": "urls", "soft_banned_words": "soft_words"},
    **{"banned_words": "banned_words", "banned_subwords": "banned_subwords"},
}
UNMAPPED = {
    "LambdaFilter": "write the rule as keep(text, metadata) in a file, for the step `python`",
    "RegexFilter": "write the pattern as keep(text, metadata) in a file, for the step `python`",
    "UnigramLogProbFilter": "the closest step is `perplexity`, with a language model of yours",
    "FastTextClassifierFilter": "use the step `quality`, `label` or `tagger` with the model",
    "NGramsDecontFilter": "use the step `decontaminate` with the files of your evaluations",
    "ReadabilityInscriptis": "the step `extract` has other extractors",
    "InferenceRunner": "no step generates text by a language model",
    "SymbolLinesFormatter": "no step removes lines of symbols",
    "MegatronDocumentTokenizer": "use the step `shards` with `format: megatron`",
}
# Comparisons of a length with a limit: (side, what to add to get the inclusive limit).
LIMITS: dict[type[ast.cmpop], tuple[str, int]] = {
    **{ast.Gt: ("min", 1), ast.GtE: ("min", 0), ast.Lt: ("max", -1), ast.LtE: ("max", 0)}
}
MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.LtE: ast.GtE}
}
_NO_STEPS = ("Reader", "Writer", "Counter", "Stats", "StatsMerger", "Indexer", "BuildIndex")


class _Known:
    """A container of the names of all DataTrove blocks that are known here, except writers."""

    def __contains__(self, name: object) -> bool:
        stages = [stage for stages in STAGES.values() for stage in stages]
        known = (*RULES, *HANDLERS, *stages, *UNMAPPED)
        return name in known or str(name).endswith("Reader")


def recognises(text: str, path: Path, document: object | None) -> bool:
    """Return True for a Python script that imports datatrove."""
    return path.suffix == ".py" and "datatrove" in text


def migrate(text: str, path: Path, document: object | None) -> Migration:
    """Return the migration of a script. Raise UsageError for a text that is not Python."""
    results: list[MappedStep | Remark | Setting] = []
    first_reader = True
    blocks = calls_of(text, path, _Known())
    names = {block.name for block in blocks if isinstance(block, Call)}
    for block in blocks:
        if isinstance(block, Expression):
            message = "this entry of a pipeline is not a block"
            results.append(Remark(block.line, str(block), message, unmapped=True))
        elif block.name.endswith("Reader"):
            if first_reader:
                operator = _operator(block, path)
                results += operator.tried(_reading(operator))
            first_reader = False
        elif not block.name.endswith(_NO_STEPS):
            operator = _operator(block, path)
            results += operator.tried(_mapped(operator, names))
    return migration("DataTrove", results)


def _operator(call: Call, path: Path) -> Operator:
    of_rule = RULES[call.name].keys() if call.name in RULES else ("data_folder",)
    return Operator.of_call(call, ORDERS.get(call.name, of_rule), path, TOOL)


def _mapped(o: Operator, names: set[str]) -> Mapped:
    first = next((first for first, stages in STAGES.items() if o.name in stages), None)
    if o.name in HANDLERS:
        yield from HANDLERS[o.name](o)
    elif o.name in RULES:
        yield from o.mapped(RULES[o.name])
        yield from _unused(o, RULES[o.name])
    elif first not in names:
        stage = f"it is a later stage of {first}, which is not in the script"
        other = stage if first else "llmcurate knows no block of this name"
        yield o.unmapped(UNMAPPED.get(o.name, other))


def _unused(o: Operator, rule: Rule) -> Iterator[Remark]:
    """Yield a remark on each argument for which our step has no setting."""
    for key, value in o.values.items():
        if key in ("**", "config"):
            yield o.differs(f"its arguments `{key}` are not constant")
        elif key == "language" and str(value).rpartition(".")[2] not in ("english", "eng"):
            yield o.differs("words are not split by DataTrove's tokenizer for that language")
        elif key in FILES and value:
            setting = f"{rule.step}.{FILES[key]}"
            yield o.differs(f"write {key} to a file, and add the file to {setting}")
        elif key not in {*rule.keys(), *NO_MATTER, *FILES, "language"} and (
            value is not None and value != ALWAYS.get(key)
        ):
            yield o.differs(f"{rule.step} has no setting for {key}")


def _language(o: Operator) -> Mapped:
    threshold = o.values.get("language_threshold", 0.65)
    if o.values.get("label_only"):
        o = replace(o, values={"language_threshold": 0.0})
    if o.values.get("languages") and isinstance(threshold, float) and threshold < 0.5:
        yield o.differs("a listed language must have the highest score, not just a high enough one")
    if o.values.get("backend") == "glotlid":
        yield o.differs("set language.model to GlotLID's model file")
    yield from o.mapped(RULES["LanguageFilter"])
    yield from _unused(o, RULES["LanguageFilter"])


def _exact_dedup(o: Operator) -> Mapped:
    by_url, normal = o.name.startswith("Url"), bool(o.values.get("url_normalizer"))
    priority = o.values.get("document_priority")
    survivor = "longest" if "len(doc.text)" in str(priority) else "first"
    if not by_url and not str(o.values.get("content_getter")).endswith(".text"):
        yield o.unmapped("its content_getter is no constant: use dedup_exact for texts or URLs")
        return
    if priority is not None and survivor == "first":
        yield o.differs("document_priority is a function: the first document is kept")
    if normal:
        yield o.differs("URLs are compared in C4's normal form instead of by url_normalizer")
    key = "url" if by_url else "text"
    yield from o.mapped(rule("dedup_exact", key=key, normalize=normal, survivor=survivor))


def _lambda_filter(o: Operator) -> Mapped:
    """Yield the step document_length for a lambda such as `lambda doc: 9 < len(doc.text) <= 99`."""
    function = o.values.get("filter_function")
    node = function.node if isinstance(function, Expression) else None
    bounds = [*_bounds(node.body if isinstance(node, ast.Lambda) else None)]
    lower, upper = ([n for side, n in bounds if side == each] for each in ("min", "max"))
    limits = {"min": max(lower, default=None), "max": min(upper, default=None)}
    yield from o.mapped(Rule("document_length", {"unit": "chars", **limits}))


def _bounds(condition: ast.expr | None) -> Iterator[tuple[str, int]]:
    """Yield the limits that a condition sets to the number of characters, as (`min` or `max`,
    inclusive limit). Raise ValueError for a condition on anything else."""
    match condition:
        case ast.BoolOp(op=ast.And(), values=parts):
            for part in parts:
                yield from _bounds(part)
        case ast.Compare(left=first, ops=signs, comparators=others):
            for left, sign, right in zip([first, *others], signs, others, strict=False):
                yield _bound(left, type(sign), right)
        case _:
            raise ValueError(UNMAPPED["LambdaFilter"])


def _bound(left: ast.expr, sign: type[ast.cmpop], right: ast.expr) -> tuple[str, int]:
    if isinstance(left, ast.Constant):
        left, sign, right = right, MIRRORED.get(sign, sign), left
    match left, right:
        case (
            ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(attr="text")]),
            ast.Constant(value=int(limit)),
        ) if sign in LIMITS:
            side, beyond = LIMITS[sign]
            return side, limit + beyond
    raise ValueError(UNMAPPED["LambdaFilter"])


def _reading(o: Operator) -> Mapped:
    """Convert a reader of datatrove: yield the recipe's setting `input` and those of its section
    `read`."""
    options = o.values.get("dataset_options")
    values = {**o.values, **(options if isinstance(options, dict) else {})}
    folder, pattern = values.get("data_folder"), values.get("glob_pattern")
    if isinstance(values.get("dataset"), str):
        folder = f"hf://datasets/{values['dataset']}"
    if isinstance(folder, str):
        path = f"{folder.rstrip('/')}/{pattern}" if isinstance(pattern, str) else folder
        yield Setting("input", path, f"line {o.line}: {o.name}")
    yield from replace(o, values=values).mapped(READER)


HANDLERS: dict[str, Callable[[Operator], Mapped]] = {
    "LanguageFilter": _language,
    "LambdaFilter": _lambda_filter,
    "ExactDedupSignature": _exact_dedup,
    "UrlDedupSignature": _exact_dedup,
}
