"""`python -m papers claims`: measure the papers' claims, and write down which of them hold here."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from papers.claims.bench import Bench, whole
from papers.claims.pictures import draw_all
from papers.claims.record import RECORD, measured
from tacit.arguments import device_named
from tacit.errors import TacitError


def main(words: Sequence[str] | None = None) -> int:
    """Measure what the papers' claims are judged by, and record for each whether it holds here.

    The sentences and their thresholds are in papers/claims.toml. What was trained is kept under --out and not trained
    again. Claims whose data is not here stay as they are recorded, and so do pictures. With --data the claims about a
    data set are measured on its own files, at the papers' scale, and recorded under --out.
    """
    asked = _parser().parse_args(words)
    told = (lambda line: None) if asked.quiet else (lambda line: print(line, file=sys.stderr, flush=True))
    try:
        if asked.data is None:
            asked.record = asked.record or RECORD
            bench = Bench(asked.out, asked.files, device=device_named(asked.device))
            kept = measured(asked.names, bench, asked.record, told=told)
        else:
            asked.out = asked.out / f"{asked.data.replace(':', '-')}-whole"
            asked.record = asked.record or asked.out / "claims.json"
            known, scales = whole(asked.data)
            files = {} if asked.folder is None else {asked.data: asked.folder}
            bench = Bench(asked.out, files, scales=scales, device=device_named(asked.device))
            kept = measured(asked.names, bench, asked.record, told=told, known=known)
        if asked.pictures and asked.data is None:
            draw_all(bench, told=told)
    except TacitError as error:
        print(f"papers: {error}", file=sys.stderr)
        return 2
    counts = Counter(claim["verdict"] for claim in kept["claims"].values())
    print(", ".join(f"{count} {verdict or 'not judged yet'}" for verdict, count in counts.most_common()))
    print(f"Recorded in {asked.record}; scripts/make_docs.py writes docs/ref-papers.md of it.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m papers claims", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="CLAIM", help="as papers/claims.toml has them (default: all)")
    parser.add_argument("--files", type=Path, metavar="DIR", help="holds adult/, skin/ and fashion/ with their files")
    parser.add_argument("--data", metavar="NAME", help="judge on this data set's own files alone, at the papers' scale")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the files of --data are")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda, or auto")
    parser.add_argument("--out", type=Path, default=Path("runs/claims"), metavar="DIR", help="for what is trained")
    parser.add_argument("--record", type=Path, metavar="FILE", help=f"(default: {RECORD.name} here)")
    parser.add_argument("--pictures", action="store_true", help="draw the figures of docs/ref-papers.md, too")
    parser.add_argument("--quiet", "-q", action="store_true", help="do not tell what was found")
    return parser


if __name__ == "__main__":
    sys.exit(main())
