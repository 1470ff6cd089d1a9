"""LaTeX sources in archives, written by hand."""

from __future__ import annotations

import io
import tarfile

MAIN = r"""% a comment
\documentclass[12pt]{article}
\newcommand{\mill}{the \emph{mill}}
\def\half{\frac{1}{2}}
\newcommand{\two}[2]{#1 and #2}
\begin{document}
\begin{abstract}On \mill. 50\% of it.\end{abstract} % why
% gone
\renewcommand{\mill}{the mill}
\section{One}
\input{parts/one.tex}
\millstone{} is no macro, \half is, \two{a}{b} stays.
\bibliography{refs}
\end{document}
"""


def tar(members: dict[str, bytes], mtime: int = 1_262_304_000) -> bytes:
    """A tar file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), mtime
            file.addfile(info, io.BytesIO(data))
    return packed.getvalue()
