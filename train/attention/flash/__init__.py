"""Our FlashAttention-2 (Dao 2023) in Triton, forward and backward, for masks made of intervals.

A query sees one interval of keys, bounded by causality, window and document, and also the sinks and
the prefix of its document. Conversely, the queries that see a key form one interval. So a few
numbers per position tell which blocks of keys a block of queries reads, and which of these need no
mask. No other block is read. spans.py has the numbers, ranges.py the intervals, forward.py and
backward.py the kernels, op.py the block sizes and the operator that ``torch.compile`` keeps in its
graph.
"""
