"""Published mixtures: the weight of each source, with its epochs and size if the paper has them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Row:
    """A source of a published mixture."""

    weight: str  # share of the text read, relative to the other weights
    epochs: str | None = None  # how often it was read, if the table says it
    size: float | None = None  # in the unit of the table

    def unique(self, total: int) -> Fraction:
        """Return the source's number of unique tokens in a mixture of `total` tokens: the share
        `weight` (here a percentage) of `total`, divided by `epochs`."""
        assert self.epochs is not None
        return Fraction(self.weight) / 100 * total / Fraction(self.epochs)


# Touvron et al. 2023 (LLaMA), table 1; the epochs are of a run of 1.4 T tokens. Sizes in GB.
LLAMA1_TOKENS = 1_400_000_000_000
LLAMA1 = {
    "commoncrawl": Row("67.0", "1.10", 3300),
    "c4": Row("15.0", "1.06", 783),
    "github": Row("4.5", "0.64", 328),
    "wikipedia": Row("4.5", "2.45", 83),
    "books": Row("4.5", "2.23", 85),
    "arxiv": Row("2.5", "1.06", 92),
    "stackexchange": Row("2.0", "1.03", 78),
}
# Gao et al. 2020, table 1. Sizes in GiB; all sources times their epochs are 1,254.20.
PILE = {
    "pile-cc": Row("18.11", "1.0", 227.12),
    "pubmed-central": Row("14.40", "2.0", 90.27),
    "books3": Row("12.07", "1.5", 100.96),
    "openwebtext2": Row("10.01", "2.0", 62.77),
    "arxiv": Row("8.96", "2.0", 56.21),
    "github": Row("7.59", "1.0", 95.16),
    "freelaw": Row("6.12", "1.5", 51.15),
    "stackexchange": Row("5.13", "2.0", 32.20),
    "uspto": Row("3.65", "2.0", 22.90),
    "pubmed-abstracts": Row("3.07", "2.0", 19.26),
    "gutenberg": Row("2.17", "2.5", 10.88),
    "opensubtitles": Row("1.55", "1.5", 12.98),
    "wikipedia": Row("1.53", "3.0", 6.38),
    "dm-mathematics": Row("1.24", "2.0", 7.75),
    "ubuntu-irc": Row("0.88", "2.0", 5.52),
    "bookcorpus2": Row("0.75", "1.5", 6.30),
    "europarl": Row("0.73", "2.0", 4.59),
    "hackernews": Row("0.62", "2.0", 3.90),
    "youtubesubtitles": Row("0.60", "2.0", 3.73),
    "philpapers": Row("0.38", "2.0", 2.38),
    "nih-exporter": Row("0.30", "2.0", 1.89),
    "enron": Row("0.14", "2.0", 0.88),
}
# Brown et al. 2020, table 2.2; the epochs are of a run of 300 billion tokens. Sizes in billions of
# tokens. The weights add up to 101. Weights, sizes and epochs agree only for sources of the web.
GPT3 = {
    "commoncrawl": Row("60", "0.44", 410),
    "webtext2": Row("22", "2.9", 19),
    "books1": Row("8", "1.9", 12),
    "books2": Row("8", "0.43", 55),
    "wikipedia": Row("3", "3.4", 3),
}
# Rae et al. 2021 (Gopher), table 2. Sizes in billions of tokens.
MASSIVETEXT = {
    "massiveweb": Row("48", None, 506),
    "books": Row("27", None, 560),
    "c4": Row("10", None, 182),
    "news": Row("10", None, 676),
    "github": Row("3", None, 422),
    "wikipedia": Row("2", None, 4),
}
# Soldaini et al. 2024 (Dolma 1.6), table 1, where C4 is part of the web; every source is read once.
# Weights are billions of tokens.
DOLMA = {
    "commoncrawl": Row("2281", "1"),
    "stack": Row("411", "1"),
    "c4": Row("198", "1"),
    "reddit": Row("89", "1"),
    "pes2o": Row("70", "1"),
    "books": Row("6.0", "1"),
    "wikipedia": Row("4.3", "1"),
}
# Le Scao et al. 2022 (BLOOM), table 1: ROOTS by language, for `by: lang`. Weights are megabytes.
# The 21 languages of Africa below 100 MB, which together have 0.01 %, are left out.
ROOTS = {
    "en": Row("484953"),
    "zh": Row("261782"),
    "fr": Row("208243"),
    "es": Row("175098"),
    "code": Row("174700"),
    "pt": Row("79278"),
    "ar": Row("74855"),
    "vi": Row("43709"),
    "hi": Row("24622"),
    "id": Row("19972"),
    "bn": Row("18607"),
    "ca": Row("17792"),
    "ta": Row("7989"),
    "ml": Row("3663"),
    "te": Row("2993"),
    "ur": Row("2781"),
    "ne": Row("2551"),
    "eu": Row("2360"),
    "kn": Row("2098"),
    "mr": Row("1775"),
    "pa": Row("1572"),
    "gu": Row("1200"),
    "or": Row("1157"),
    "as": Row("292"),
    "sw": Row("236"),
}
PRESETS = {
    "llama1": LLAMA1,
    "pile": PILE,
    "gpt3": GPT3,
    "massivetext": MASSIVETEXT,
    "dolma": DOLMA,
    "roots": ROOTS,
}


def preset_weights(preset: str) -> dict[str, Fraction]:
    return {name: Fraction(row.weight) for name, row in PRESETS[preset].items()}
