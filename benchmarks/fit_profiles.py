# ruff: noqa: E501 - letters of other scripts count more columns than they take
"""The shipped profiles: python -m benchmarks.fit_profiles WEB > curate/text/profiles.yaml

WEB: an OUT of `extract` and `language` on real pages.

Stop words and limits begin as FineWeb2 published them, learned from Wikipedia and Common Crawl
(https://github.com/huggingface/fineweb-2, configs/, commits 05e6729 and baedee4). Its words are
those of other segmenters, so each limit is widened to what language_profiles.py learns,
with our words, from every other document of longtext/ (LLMCURATE_SHARED). No limit is stricter than the
default for English. benchmarks/languages.py prints how good
they are, on texts that were not fitted to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.languages import FILES, longtext, pages

N = range(2, 11)
# By language: the share of a line's end marks, newlines a word, words without a letter (the least
# share of those with one), duplicate lines, the top 2- to 4-grams and duplicate 5- to 10-grams, the
# least and greatest mean length of a word, the threshold of GlotLID's confidence, stop words. Left
# out of these: marks, numbers of years, and French words that end in an apostrophe. Of Thai the
# words are ours, since FineWeb2's (มี, การ and the like) stand in menus and names, too.
FINEWEB2: dict[str, tuple[Any, ...]] = {
    "th": (0.0, 0.153, 0.9, 0.349, (0.221, 0.197, 0.162, 0.185, 0.168, 0.152, 0.137, 0.124, 0.111),
           2, 10, 0.9, "ที่ และ ของ ใน จะ ว่า ให้ ได้ ไม่ โดย จาก กับ นี้ ซึ่ง เพื่อ แต่ ถึง ต้อง เป็น"),
    "zh": (0.106, 0.178, 0.735, 0.287,
           (0.256, 0.201, 0.171, 0.198, 0.182, 0.167, 0.154, 0.14, 0.127), 1, 5, 0.692,
           "的 在 是 和 了 於 為 有 被 中 为 他 與 後 也 而 由"),
    "ja": (0.167, 0.162, 0.759, 0.375,
           (0.121, 0.129, 0.145, 0.307, 0.283, 0.264, 0.248, 0.234, 0.223), 1, 5, 0.886,
           "の に を は た て が と で し れ さ"),
    "de": (0.0, 0.152, 0.774, 0.263, (0.169, 0.153, 0.137, 0.141, 0.134, 0.126, 0.117, 0.108, 0.098),
           0, 15, 0.821, "der und die in von im den des mit das er dem als wurde für"),
    "fr": (0.1, 0.185, 0.812, 0.264, (0.161, 0.149, 0.134, 0.15, 0.141, 0.131, 0.121, 0.111, 0.1),
           2, 11, 0.824, "de la le et à en des du les est un une il dans par au"),
    "ru": (0.231, 0.139, 0.713, 0.322,
           (0.184, 0.164, 0.146, 0.168, 0.156, 0.145, 0.133, 0.121, 0.109), 3, 11, 0.9,
           "в и на с года по году из был к не от что за для его как а он также до после"),
    "hi": (0.091, 0.316, 0.837, 0.206, (0.208, 0.198, 0.161, 0.135, 0.125, 0.116, 0.108, 0.099, 0.09),
           2, 21, 0.692, "के में है की और से का को एक हैं पर"),
    "ta": (0.2, 0.232, 0.779, 0.302, (0.087, 0.109, 0.134, 0.144, 0.126, 0.113, 0.101, 0.091, 0.08),
           5, 37, 0.888, "மற்றும் ஒரு இந்த ஆம் இது என்ற இவர் உள்ள ஆகும் ஆண்டு அல்லது என்பது முதல் உள்ளது என்று"
           " இந்திய மக்கள் ஊராட்சி இல் இருந்து மேலும் பல"),
    "bn": (0.25, 0.268, 0.8, 0.165, (0.084, 0.103, 0.134, 0.099, 0.083, 0.069, 0.058, 0.048, 0.04),
           4, 24, 0.872, "এবং ও হয় করে একটি তিনি করা থেকে"),
    "lo": (0.0, 0.2, 0.85, 0.327, (0.198, 0.175, 0.143, 0.187, 0.175, 0.163, 0.149, 0.135, 0.123),
           2, 9, 0.691, "ແລະ ໃນ ຂອງ ເປັນ ທີ່ ໄດ້ ມີ"),
    "km": (0.077, 0.667, 0.905, 0.92,
           (0.165, 0.225, 0.242, 0.197, 0.168, 0.148, 0.126, 0.107, 0.094), 2, 13, 0.3,
           "មាន បាន ដែល ជា និង នៅ របស់ ក្នុង ថា នេះ នៃ ហើយ ទៅ ដោយ"),
    "my": (0.0, 0.125, 0.75, 0.308, (0.074, 0.097, 0.115, 0.161, 0.132, 0.118, 0.101, 0.09, 0.079),
           2, 21, 0.839, "သည် များ ကို တွင် ဖြစ် သော ခဲ့ နှင့် ရှိ တို့ မှာ"),
}  # fmt: skip
# Grapheme clusters in a word, as our table has them: of Thai by PyThaiNLP's words (newmm), of
# Chinese by jieba's and of Japanese by UniDic's short units, in longtext/ and NTREX-128; of Lao,
# Khmer and Burmese as many as make NTREX-128's sentences as long in words as in English, which
# gives 3.9 for Thai.
CLUSTERS = {"th": 4.0, "zh": 1.7, "ja": 1.7, "lo": 3.8, "km": 3.7, "my": 2.9}
# Closing quotes that a language writes (CLDR), and the end marks of three scripts by Unicode: novels
# and stories show not all of them.
MARKS = {
    "zh": "”」』", "ja": "」』", "de": "“«\"", "fr": "»\"", "ru": "»“\"", "hi": "।”\"", "ta": "”\"",
    "bn": "।?!”\"", "km": "។!?”", "my": "။!?”",
}  # fmt: skip


# Thai and Lao write no end marks, and without spaces a stop word counts wherever its letters stand,
# in names too: of Thai, which has menus of two, 99.5 % of the government texts hold five.
MIN_STOP_WORDS = {"th": 5, "lo": 4}


def published(lang: str) -> dict[str, Any]:
    """FineWeb2's limits of a language as a profile has them."""
    marks, newlines, alpha, lines, grams, shortest, longest, score, _ = FINEWEB2[lang]
    by_n = {n: grams[n - 2] for n in N}
    return {
        "language": {"threshold": score},
        "gopher_quality": {
            "min_word_length": shortest,
            "max_word_length": longest,
            "min_alpha_words": alpha,
        },
        "gopher_repetition": {
            "max_duplicate_lines": lines,
            "max_top_n_gram_chars": {n: by_n[n] for n in N if n < 5},
            "max_duplicate_n_gram_chars": {n: by_n[n] for n in N if n > 4},
        },
        "fineweb_quality": {"min_end_marks": marks, "max_newlines": newlines},
    }


def widest(setting: str, *values: Any) -> Any:
    """The loosest of some limits, of mappings entry by entry."""
    given = [v for v in values if v is not None]
    if isinstance(given[0], dict):
        return {k: widest(setting, *(v.get(k) for v in given)) for k in given[0]}
    return min(given) if setting.startswith("min_") or setting == "threshold" else max(given)


def fitted(web: Path) -> dict[str, Any]:
    """What is learned from the texts that are fitted to. English has the real pages besides, since
    its limits were made for pages."""
    import pyarrow as pa

    from benchmarks.language_profiles import learned
    from curate.scoring.language.identification import Language

    def read() -> Iterator[pa.RecordBatch]:
        for lang in FILES:
            texts = [
                x for half in ((0, 1) if lang in SMALL else (0,)) for x in longtext(lang, half)
            ]
            texts = texts[:600] + (list(pages(web, lang)) if lang == "en" else [])
            for at in range(0, len(texts), 200):
                rows = [{"text": x, "lang": lang} for x in texts[at : at + 200]]
                yield pa.RecordBatch.from_pylist(rows)

    entries, passed = learned(read, Language(profile="none"), min_documents=25)
    print(*passed, sep="\n", file=sys.stderr)
    return entries


SMALL = ("hi", "ta", "bn")  # of which there is too little to hold half of it out


def main() -> None:
    from benchmarks.language_profiles import text_of
    from curate.filters.fineweb import FineWebQuality
    from curate.filters.gopher import GopherQuality, GopherRepetition

    ours = fitted(Path(sys.argv[1]))
    defaults = {
        c.name: c(profile="none") for c in (GopherQuality, GopherRepetition, FineWebQuality)
    }
    profiles = {"en": ours["en"]}
    for lang in FINEWEB2:
        profile = {k: v for k, v in ours.get(lang, {}).items() if k in ("word_length", "end_marks")}
        if lang in CLUSTERS:
            profile["clusters"] = CLUSTERS[lang]
        profile["stop_words"] = FINEWEB2[lang][-1].split()
        marks = profile.get("end_marks", "") + MARKS.get(lang, "")
        profile["end_marks"] = "".join(dict.fromkeys(marks))
        limits: dict[str, Any] = {}
        for step, settings in published(lang).items():
            learnt = ours.get(lang, {}).get("limits", {}).get(step, {})
            for key, value in settings.items():
                default = getattr(defaults[step], key) if step in defaults else None
                limit = widest(key, value, learnt.get(key), default)
                if limit != default:
                    limits.setdefault(step, {})[key] = limit
            limits.setdefault(step, {}).update(
                {k: v for k, v in learnt.items() if k not in settings}
            )
        if lang in MIN_STOP_WORDS:
            limits["gopher_quality"]["min_stop_words"] = MIN_STOP_WORDS[lang]
        profiles[lang] = profile | {"limits": {k: v for k, v in limits.items() if v}}
    print("# Made by benchmarks/fit_profiles.py, which says where each figure is from.")
    print("# docs/language.md says what a profile is and how good these are.")
    print(text_of(profiles), end="")


if __name__ == "__main__":
    main()
