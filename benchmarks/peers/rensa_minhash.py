"""rensa's signatures of the same documents, in its own environment and one thread.

rensa_minhash.py texts INPUT.parquet PERMUTATIONS EVERY    word 5-grams cut here, in Python
rensa_minhash.py hashes FOLDER PERMUTATIONS                hashes.npy and offsets.npy, made before

Prints {"seconds": [of each pass], "peak_mib": MiB}. RMinHash is a sketch of another kind: it fills
its slots in a few rounds over the shingles where MinHash takes the least of each permutation.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

SEED = 1


def texts(path: str, permutations: int, every: int) -> list[float]:
    import pyarrow.parquet as pq
    from rensa import RMinHash

    documents = pq.read_table(path, columns=["text"])["text"].to_pylist()[::every]
    find = re.compile(r"\w+").findall
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        sets = []
        for text in documents:
            words = find(text.lower())
            sets.append([" ".join(words[i : i + 5]) for i in range(max(1, len(words) - 4))])
        RMinHash.digest_matrix_from_token_sets(sets, permutations, SEED)
        times.append(time.perf_counter() - begin)
    return times


def hashes(folder: str, permutations: int) -> list[float]:
    import numpy as np
    from rensa import RMinHash

    values, offsets = (np.load(Path(folder, f"{n}.npy")) for n in ("hashes", "offsets"))
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        RMinHash.digest_matrix_from_flat_token_hashes(values, offsets, permutations, SEED)
        times.append(time.perf_counter() - begin)
    return times


def main() -> None:
    mode, source, permutations = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if mode == "texts":
        times = texts(source, permutations, int(sys.argv[4]))
    else:
        times = hashes(source, permutations)
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    print(json.dumps({"seconds": times, "peak_mib": peak}))


if __name__ == "__main__":
    main()
