"""The registry: names of steps and the classes behind them.

Names map to classes lazily, so that listing them imports no step. Other distributions add steps by
the entry point group `llmcurate.steps` (name = "module:Class").
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING

from llmcurate.base import start
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError

if TYPE_CHECKING:
    from curate.steps.contracts import Settings

REGISTRY: dict[str, str] = {
    "extract": "curate.extract.extraction:Extract",
    "c4": "curate.filters.c4:C4",
    "c4_paragraphs": "curate.filters.c4:C4Paragraphs",
    "bad_words": "curate.filters.bad_words:BadWords",
    "refinedweb_lines": "curate.filters.refinedweb:RefinedWebLines",
    "gopher_quality": "curate.filters.gopher:GopherQuality",
    "gopher_repetition": "curate.filters.gopher:GopherRepetition",
    "fineweb_quality": "curate.filters.fineweb:FineWebQuality",
    "periodic_repetition": "curate.filters.periodic:PeriodicRepetition",
    "column_filter": "curate.filters.column:ColumnFilter",
    "oscar": "curate.filters.oscar:Oscar",
    "roots_words": "curate.filters.roots:RootsWords",
    "roots": "curate.filters.roots:Roots",
    "document_length": "curate.filters.length:DocumentLength",
    "url_filter": "curate.filters.url:UrlFilter",
    "code": "curate.filters.code:Code",
    "license_notice": "curate.filters.code:LicenseNotice",
    "license": "curate.filters.license:License",
    "notebook": "curate.extract.notebook:Notebook",
    "pii": "curate.filters.pii:Pii",
    "opt_out": "curate.filters.opt_out:OptOut",
    "python": "curate.filters.python:PythonFilter",
    "newline_runs": "curate.filters.refinedweb:NewlineRuns",
    "wangchanberta": "curate.filters.wangchanberta:WangchanBERTa",
    "language": "curate.scoring.language.identification:Language",
    "onnx_score": "curate.scoring.onnx_score:OnnxScore",
    "math_score": "curate.scoring.math_score:MathScore",
    "tagger": "curate.scoring.tagger:Tagger",
    "quality": "curate.scoring.quality.quality:Quality",
    "quality_buckets": "curate.scoring.quality.buckets:QualityBuckets",
    "label": "curate.scoring.label:Label",
    "dedup_exact": "curate.dedup.exact:DedupExact",
    "dedup_minhash": "curate.dedup.minhash.near_duplicates:DedupMinhash",
    "bloom_file": "curate.dedup.bloom.pybloom:BloomFile",
    "dedup_bloom": "curate.dedup.bloom.seen_before:DedupBloom",
    "dedup_passages": "curate.dedup.passages.repeated_passages:DedupPassages",
    "dedup_semantic": "curate.dedup.semantic.semantic_duplicates:DedupSemantic",
    "dedup_suffix_array": "curate.dedup.suffix_array.exact_substrings:DedupSuffixArray",
    "decontaminate": "curate.dedup.decontaminate.decontamination:Decontaminate",
    "perplexity": "curate.scoring.perplexity.perplexity:Perplexity",
    "mix": "curate.mix.product:Mix",
    "export": "curate.products.export:Export",
    "tokenizer": "curate.products.tokenizers:TokenizerProduct",
    "shards": "curate.products.tokenizers:ShardsProduct",
    "pretrain": "curate.products.pretraining:PretrainProduct",
    "search_index": "curate.products.export:SearchIndexProduct",
    "language_model": "curate.products.language_model:LanguageModel",
    "perplexity_model": "curate.products.perplexity_model:PerplexityModel",
}


def step_names() -> list[str]:
    """All known names, those of installed plug-ins included."""
    return sorted({*REGISTRY, *_plugins()})


def _plugins() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {p.name: p.value for p in entry_points(group="llmcurate.steps")}


def step_class(name: str) -> type[Settings]:
    """The class behind a name; UsageError names the nearest one, RunFailed says why it cannot be
    loaded."""
    location = REGISTRY.get(name) or _plugins().get(name)
    if location is None:
        near = get_close_matches(name, step_names(), 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(step_names())}"
        raise UsageError(f"unknown step {name!r}{hint}")
    module, _, attribute = location.partition(":")
    start.plug_ins.update({module.partition(".")[0]} - start.OURS)
    try:
        cls: type[Settings] = getattr(importlib.import_module(module), attribute)
    except LlmcurateError:
        raise
    except Exception as error:
        from curate.steps.failures import described

        raise RunFailed(
            f"step {name} cannot be loaded from {location}: {described(error)}"
        ) from error
    if getattr(cls, "name", None) != name:
        raise RunFailed(f"step {name}: the class {location} needs `name: ClassVar[str] = {name!r}`")
    return cls
