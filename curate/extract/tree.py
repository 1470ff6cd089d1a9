"""What the scanner keeps of a page: columns of its tables, its state, its stack.

Two tables grow from the front: runs of text between the edges of elements (blocks), and elements
that make such edges (nodes; a node stands behind its parent).
"""

from __future__ import annotations

MAX_DEPTH = 512  # where browsers stop nesting too; deeper elements count as their parent's text
MAX_ELEMENTS = 500_000  # tags in a page; each may need a row of both tables

# Columns of a block: text[START:END] of node NODE; bytes of it in links and in bold; how many
# links; hints of the elements around its first letter; 1 where a double line break cut it.
START, END, NODE, LINK_BYTES, LINKS, BOLD_BYTES, HINTS, CUT, BLOCK_COLUMNS = range(9)
# Columns of a node: its tag, its parent (the page itself is node 0), hints of its own and with all
# around it, and 1 where it stands in preformatted text.
N_TAG, N_PARENT, N_OWN, N_ALL, N_PRE, NODE_COLUMNS = range(6)
# The scanner's state.
# The scanner's state: where the text ends and where its open block begins; white space since its
# last letter; how many blocks, nodes, open elements, elements too deep to be opened; how many open
# elements are links, bold, preformatted, not read; what will be columns of the open block.
(
    ST_POS, ST_FROM, ST_PENDING, ST_BLOCKS, ST_NODES, ST_DEPTH, ST_OVER, ST_LINK, ST_BOLD, ST_PRE,
    ST_MUTE, ST_LINK_BYTES, ST_LINKS, ST_BOLD_BYTES, ST_BLOCK_HINTS, ST_BLOCK_NODE, ST_CUT,
    ST_STATE,
) = range(18)  # fmt: skip
SPACED, NEWLINE, BROKEN = 1, 2, 3  # white space seen since the last letter; a <br>
# Columns of the stack.
S_TAG, S_NODE, S_FLAGS, S_HINTS, S_COLUMNS = range(5)
F_LINK, F_BOLD, F_PRE, F_MUTE = 1, 2, 4, 8
