"""Imported by a worker while it waits: what every run needs and takes a moment to load.

numba sets itself up when its first kernel runs, and the character tables are computed once.
"""

from __future__ import annotations

import numpy as np

from curate.text.tables import segment
from curate.text.words import character_tables

segment(np.frombuffer(bytearray(b"warm"), np.uint8), np.array([0, 4], np.int64))
character_tables()
