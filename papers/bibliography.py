"""The five papers, under the names by which everything here cites them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["PAPERS", "Paper", "paper_of"]


@dataclass(frozen=True)
class Paper:
    """One of the papers.

    Attributes:
        key: how it is cited.
        number: what the names of its figures begin with.
        authors: all of them.
        title: its title.
        where: where it appeared, with its number there.
        link: to its text.
    """

    key: str
    number: str
    authors: str
    title: str
    where: str
    link: str


_TITLE = "Label Leakage and Protection in Two-party Split Learning"
_CODE = "https://github.com/bytedance/fedlearner/tree/master/example/privacy"

PAPERS: Mapping[str, Paper] = MappingProxyType(
    {
        paper.key: paper
        for paper in (
            Paper(
                "Li 2020", "000",
                "Oscar Li, Jiankai Sun, Weihao Gao, Hongyi Zhang, Xin Yang, Junyuan Xie, Chong Wang",
                _TITLE, "NeurIPS 2020 workshop on Scalability, Privacy, and Security in Federated Learning (SpicyFL)",
                f"{_CODE}/label_protection/NeurIPS2020_SpicyFL",
            ),
            Paper(
                "Report 2020b", "001", "Jiankai Sun, Weihao Gao, Chong Wang",
                "Technical Report of Embedding Protection in Federated Learning", "ByteDance, fedlearner",
                f"{_CODE}/embedding_protection",
            ),
            Paper(
                "Report 2020a", "002",
                "Jiankai Sun, Weihao Gao, Hongyi Zhang, Junyuan Xie, Liangchao Wu, Chong Wang, Runliang Li, Xin Yang",
                "Technical Report of Label Leakage and Protection in Federated Learning", "ByteDance, fedlearner",
                f"{_CODE}/label_protection",
            ),
            Paper(
                "Li 2021", "003",
                "Oscar Li, Jiankai Sun, Xin Yang, Weihao Gao, Hongyi Zhang, Junyuan Xie, Virginia Smith, Chong Wang",
                _TITLE, "arXiv:2102.08504v1", "https://arxiv.org/abs/2102.08504v1",
            ),
            Paper(
                "Li 2022", "004",
                "Oscar Li, Jiankai Sun, Xin Yang, Weihao Gao, Hongyi Zhang, Junyuan Xie, Virginia Smith, Chong Wang",
                _TITLE, "ICLR 2022, OpenReview cOtBRgsf2fO; arXiv:2102.08504v3",
                "https://openreview.net/forum?id=cOtBRgsf2fO",
            ),
        )
    }
)  # fmt: skip
"""Each by its key, in the order of the numbers in the names of figures."""


def paper_of(figure: str) -> Paper | None:
    """The paper that a figure is of, by its name; None of the table of attacks, which no paper has.

    >>> paper_of("004-figure-2").key, paper_of("attacks")
    ('Li 2022', None)
    """
    number = figure.partition("-")[0]
    return next((paper for paper in PAPERS.values() if paper.number == number), None)
