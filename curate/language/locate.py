"""Where the language model is: a setting, LLMCURATE_LID_MODEL, or fastText's own in the cache."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from curate.errors import RunFailed, UsageError
from curate.fetch.offline import OFFLINE
from curate.progress import say

VARIABLE = "LLMCURATE_LID_MODEL"
CACHE = "LLMCURATE_CACHE"


@dataclass(frozen=True)
class Published:
    """A model that is fetched when it is asked for by name."""

    url: str
    size: int  # bytes
    sha256: str


_HOME = "https://dl.fbaipublicfiles.com/fasttext/supervised-models"
# fastText publishes no checksums. That of the .ftz was taken from the file; the figures of the
# .bin are what others pin (telekom/mltb2, mltb2/fasttext.py).
PUBLISHED = {
    "lid.176.ftz": Published(
        f"{_HOME}/lid.176.ftz",
        938_013,
        "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83",
    ),
    "lid.176.bin": Published(
        f"{_HOME}/lid.176.bin",
        131_266_198,
        "7e69ec5451bc261cc7844e49e4792a85d7f09c06789ec800fc4a44aec362764e",
    ),
}
DEFAULT = "lid.176.ftz"


def effective(model: str | None) -> str:
    """The model that counts: the setting, else the environment's, else `lid.176.ftz`. A path, or
    the name of a published model."""
    return model or os.environ.get(VARIABLE) or DEFAULT


def cache_folder() -> Path:
    """LLMCURATE_CACHE, else `llmcurate` in the platform's folder for caches."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llmcurate"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "llmcurate"


def model_path(model: str) -> Path:
    """The file of an effective model; a published one that the cache lacks is fetched.

    UsageError where there is none.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return path
    published = PUBLISHED.get(model)
    if published is None:
        what = "is a folder" if path.is_dir() else "is not there"
        raise UsageError(
            f"language model {path} {what}: give --model PATH, set {VARIABLE}, or leave both away"
            f" for {DEFAULT}"
        )
    cached = cache_folder() / "models" / model
    if not cached.is_file():
        _fetch(published, cached)
    return cached


def _missing(why: str) -> str:
    known = PUBLISHED[DEFAULT]
    return (
        f"no language model: give --model PATH, set {VARIABLE}, or allow the download of"
        f" {known.url} to {cache_folder() / 'models'} ({why})"
    )


def _fetch(model: Published, target: Path) -> None:
    """What lies in the cache is whole and is what was meant."""
    from curate.fetch.download import fetch_one
    from curate.fetch.transfer import Wanted

    if os.environ.get(OFFLINE):
        raise UsageError(_missing(f"{OFFLINE} is set"))
    say(f"fetching {model.url} ({model.size / 1e6:.1f} MB) to {target.parent}")
    try:
        fetch_one(Wanted(model.url, target, f"sha256:{model.sha256}", most=model.size), tries=3)
    except RunFailed as error:
        raise UsageError(_missing(f"download failed: {error}")) from None
