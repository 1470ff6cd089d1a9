"""Each rule of DataTrove's quality filters by itself, for parity_datatrove.py, and the speed of the
filters; runs in DataTrove's own environment and prints one JSON line.

datatrove_quality.py rules DOCUMENTS.jsonl    {rule: [whether it drops the document, ...]}
datatrove_quality.py words DOCUMENTS.jsonl    [[word, ...], ...], as its filters cut them
datatrove_quality.py time DOCUMENTS.jsonl     seconds of each filter, for bench_filters.py
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def quality_rules() -> dict:
    from datatrove.pipeline.filters import GopherQualityFilter

    off = {
        "min_doc_words": None,
        "max_doc_words": None,
        "min_avg_word_length": None,
        "max_avg_word_length": None,
        "max_symbol_word_ratio": None,
        "max_bullet_lines_ratio": None,
        "max_ellipsis_lines_ratio": None,
        "max_non_alpha_words_ratio": None,
        "min_stop_words": None,
    }
    on = {
        "few_words": {"min_doc_words": 50},
        "many_words": {"max_doc_words": 100000},
        "short_words": {"min_avg_word_length": 3},
        "long_words": {"max_avg_word_length": 10},
        "symbol_ratio": {"max_symbol_word_ratio": 0.1},
        "bullet_lines": {"max_bullet_lines_ratio": 0.9},
        "ellipsis_lines": {"max_ellipsis_lines_ratio": 0.3},
        "alpha_words": {"max_non_alpha_words_ratio": 0.8},
        "stop_words": {"min_stop_words": 2},
    }
    return {f"gopher_quality.{k}": GopherQualityFilter(**{**off, **v}) for k, v in on.items()}


def repetition_rules() -> dict:
    from datatrove.pipeline.filters import GopherRepetitionFilter

    off = {
        "dup_line_frac": None,
        "dup_para_frac": None,
        "dup_line_char_frac": None,
        "dup_para_char_frac": None,
        "top_n_grams": (),
        "dup_n_grams": (),
    }
    on: dict = {
        "duplicate_lines": {"dup_line_frac": 0.3},
        "duplicate_paragraphs": {"dup_para_frac": 0.3},
        "duplicate_line_chars": {"dup_line_char_frac": 0.2},
        "duplicate_paragraph_chars": {"dup_para_char_frac": 0.2},
    }
    top = {2: 0.2, 3: 0.18, 4: 0.16}
    on |= {f"top_{n}_gram_chars": {"top_n_grams": ((n, v),)} for n, v in top.items()}
    duplicate = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
    on |= {f"duplicate_{n}_gram_chars": {"dup_n_grams": ((n, v),)} for n, v in duplicate.items()}
    return {f"gopher_repetition.{k}": GopherRepetitionFilter(**{**off, **v}) for k, v in on.items()}


def fineweb_rules() -> dict:
    from datatrove.pipeline.filters import FineWebQualityFilter

    off = {
        "line_punct_thr": -1,
        "short_line_thr": 2,
        "char_duplicates_ratio": 2,
        "new_line_ratio": float("inf"),
    }
    on = {
        "end_marks": {"line_punct_thr": 0.12},
        "short_lines": {"short_line_thr": 0.67},
        "duplicate_line_chars": {"char_duplicates_ratio": 0.01},
        "newlines": {"new_line_ratio": 0.3},
    }
    return {f"fineweb_quality.{k}": FineWebQualityFilter(**{**off, **v}) for k, v in on.items()}


def words(path: str) -> None:
    from datatrove.utils.text import split_into_words
    from datatrove.utils.typeshelper import Languages

    texts = [json.loads(line) for line in Path(path).read_text().split("\n")[:-1]]
    print(json.dumps([split_into_words(text, Languages.english) for text in texts]))


def timed(path: str) -> None:
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    filters = {
        "C4QualityFilter": C4QualityFilter(min_words_per_line=5, min_num_sentences=3),
        "GopherQualityFilter": GopherQualityFilter(),
        "GopherRepetitionFilter": GopherRepetitionFilter(),
        "FineWebQualityFilter": FineWebQualityFilter(),
    }
    texts = [json.loads(line)["text"] for line in Path(path).read_text().split("\n")[:-1]]
    seconds = dict.fromkeys(filters, 0.0)
    for number, text in enumerate(["Warm up. " * 30, *texts]):
        doc = Document(text=text, id="")  # C4 changes it; the words of equal texts are cached
        for name, rule in filters.items():
            begin = time.perf_counter()
            rule.filter(doc)
            if number:
                seconds[name] += time.perf_counter() - begin
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"seconds": seconds, "peak_mib": peak}))


def main(path: str) -> None:
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    rules = {
        "gopher_quality": GopherQualityFilter(),
        "gopher_repetition": GopherRepetitionFilter(),
        "fineweb_quality": FineWebQualityFilter(),
        **quality_rules(),
        **repetition_rules(),
        **fineweb_rules(),
    }
    dropped: dict = {name: [] for name in rules}
    for line in Path(path).read_text().split("\n")[:-1]:
        doc = Document(text=json.loads(line), id="")
        for name, rule in rules.items():  # the words of a text are cached
            dropped[name].append(rule.filter(doc) is not True)
    print(json.dumps(dropped))


if __name__ == "__main__":
    {"rules": main, "words": words, "time": timed}[sys.argv[1]](sys.argv[2])
