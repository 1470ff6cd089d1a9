"""Property tests draw the same examples on every run; LLMCURATE_EXPLORE=1 draws new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("explore" if os.environ.get("LLMCURATE_EXPLORE") else "same")
