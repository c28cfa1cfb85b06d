"""Every fenced block of every page runs, word by word, as somebody who follows the page would do it.

A page is followed from its top in a folder of its own. What a block is, its first line says:

- `python` is run; `python NAME`, `toml NAME` and the like are files, which are written;
- `sh` is given to bash, with `tacit` on the path;
- `text printed` is what the commands before it print: its lines must come, in their order (`...` for anything);
  `text about` the same, where numbers may differ by 0.02;
  `text` without such a word, what a run of ours printed once, is not compared;
- `toml` without a name is a part of some settings: its keys must be known; `pycon` is run by pytest itself.

What can't run here stands in `NOT_RUN`, line by line, with the reason, and what takes long in `SMALLER`, with the
same command in small. Of both, `tacit` commands must still be ones that the command line understands.
"""

import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from tacit.cli import app
from tacit.config import Contract, OneShotContract, Party
from tacit.lab.data.own import Description

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *(ROOT / "docs").glob("*.md")])
PORTS = ("7080", "7081", "7443", "7444", "8765", "8900")
FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
READ_ONLY = {
    "": "a drawing",
    "text": "what was printed once",
    "{toctree}": "the site's own",
    "pycon": "pytest runs it",
    "nginx": "the settings of another program",
    "ini": "the settings of another program",
    "yaml": "the settings of another program",
}

# What a page takes for granted, by the names of tests/docs/conftest.py; a page that is not here begins with nothing.
WORLDS = {
    "README.md": ["exchanged"],
    "howto-align-large-tables.md": ["finished"],
    "howto-next-month.md": ["exchanged"],
    "howto-one-exchange.md": ["exchanged"],
    "howto-resume-after-a-disaster.md": ["finished"],
    "howto-rotate-certificates.md": ["finished"],
    "howto-run-by-day.md": ["finished"],
    "howto-score-a-file.md": ["exchanged"],
    "howto-serve.md": ["exchanged"],
    "howto-set-a-limit.md": ["finished"],
    "howto-watch-a-run.md": ["exchanged"],
    "tutorial-bring-your-own-model.md": ["exchanged", "finished:split/marvell"],
    "tutorial-ten-minutes.md": ["exchanged:runs/demo"],
}

INSTALLS = "installs, or tests, what this very test runs in"
LONG = "takes many minutes; the same command in small is run elsewhere on the page"
MADE = "the tutorials of two companies make such a folder"
TWO = "waits for the other company; the tutorials of two companies run both sides"
MACHINES = "needs more than one machine, or a GPU"
SERVES = "goes on until it is stopped; the tests of this verb run it"
ELSEWHERE = "another page, or the tests of this verb, run it"
FILES = "needs files that are not here"

# Lines of `sh` blocks that can't run here, each with its reason.
NOT_RUN = {
    "README.md": {
        "make demo": INSTALLS,
        "make test": INSTALLS,
        "tacit init --role label --data customers.parquet --ids customer --label bought bank": MADE,
        "tacit trust media.crt --folder bank": MADE,
        "tacit contract --new --folder bank": MADE,
        "tacit align --folder bank --wait 10m": TWO,
        "tacit train --folder bank --wait 10m": TWO,
        "tacit align --run august --folder airline": TWO,
        "tacit predict new.parquet --out scores.parquet --folder airline": ELSEWHERE,
    },
    "howto-align-large-tables.md": {
        "tacit align --cluster 10.0.0.1:6379 --folder airline": MACHINES,
    },
    "howto-one-exchange.md": {
        "tacit choose --label-limit 0.6,0.75 --odds 3 --bits 1,2,3 --numbers 1,8 --seeds 3": LONG,
    },
    "howto-choose-a-strength.md": {
        "tacit choose --limit 0.6": LONG,
        'tacit choose --limit 0.65 --rows 20000 --epochs 3 --protect "matched(visits=3)" --strengths 6 --out refined': (
            LONG
        ),
        "tacit sweep": LONG,
        "tacit sweep --data credit --folder DIR": FILES,
        "tacit choose --data clicks.toml --limit 0.7 --protect matched,iso --strengths 4 --epochs 3": FILES,
        "pip install -e '.[cluster]'": INSTALLS,
        "ray start --head": MACHINES,
        "ray start --address 10.0.0.1:6379": MACHINES,
        "tacit sweep --cluster 10.0.0.1:6379": MACHINES,
    },
    "ref-papers.md": {
        "make papers DATA=criteo FOLDER=/data/criteo": FILES,
        "python -m papers claims --files /data": LONG,
        "python -m papers claims confidence norms": "tests/papers do it in small",
        "python -m papers 004-figure-4": LONG,
        "python -m papers 004-figure-3 004-figure-4": LONG,
        "python -m papers all": LONG,
        "python -m papers 004-figure-4 004-strengths --rows 8000": "takes a minute; tests/papers do it in small",
        "python -m papers 004-figure-8 --data generated:criteo --rows 4584062 --scale paper --device cuda": (MACHINES),
        "python -m papers attacks --data flights --epochs 3 --scale paper": LONG,
    },
    "howto-watch-a-run.md": {
        "tacit dashboard airline": SERVES,
    },
    "howto-serve.md": {
        "tacit serve --folder airline-new --http 127.0.0.1:7082": SERVES,
    },
    "tutorial-ten-minutes.md": {
        "tacit demo --out runs/demo": "takes two minutes; the world of this page is what it leaves, in small",
    },
}

# Lines that take long as they stand, and the same in small.
SMALLER = {
    "howto-one-exchange.md": {
        "tacit choose --label-limit 0.6 --odds 3 --rows 20000 --bits 2,3": (
            "tacit choose --label-limit 0.95 --odds 20 --rows 2000 --bits 2 --attack-rows 1000"
        ),
    },
    "howto-choose-a-strength.md": {
        "tacit sweep --rows 12000 --epochs 3 --strengths 3 --quick --out small": (
            "tacit sweep --rows 2000 --epochs 1 --strengths 2 --quick --out small"
        ),
        "tacit choose --limit 0.65 --rows 20000 --strengths 4 --epochs 3": (
            "tacit choose --limit 0.99 --rows 1000 --strengths 2 --epochs 1 --quick --protect iso,matched"
        ),
        "tacit choose --limit 0.7 --from runs/sweep-flights/results.parquet": (
            "tacit choose --limit 0.99 --quick --from runs/sweep-flights/results.parquet"
        ),
    },
    "ref-papers.md": {
        "tacit sweep --rows 20000 --strengths 4 --epochs 3": "tacit sweep --rows 999 --strengths 1 --epochs 1 --quick",
    },
    "tutorial-bring-your-own-model.md": {
        "tacit train --quiet --folder split/marvell/airline &": (
            "tacit train --no-audit --quiet --folder split/marvell/airline &"
        ),
        "tacit train --quiet --folder split/marvell/airport": (
            "tacit train --no-audit --quiet --folder split/marvell/airport"
        ),
    },
    "tutorial-one-shot.md": {
        'chosen = pl.col("flight_id") % 20 == 0': 'chosen = pl.col("flight_id") % 200 == 0',
    },
    "tutorial-two-companies.md": {
        'chosen = pl.col("flight_id") % 20 == 0': 'chosen = pl.col("flight_id") % 40 == 0',
        "tacit train --folder airline &": "tacit train --no-audit --folder airline &",
        "tacit train --folder airport": "tacit train --no-audit --folder airport",
    },
}


@dataclass(frozen=True)
class Block:
    """A fenced block: its page's name, the line where it begins, the words behind its fence, and its text."""

    page: str
    line: int
    language: str
    name: str
    text: str

    def __str__(self):
        return f"{self.page}, line {self.line}"


def blocks(page):
    text = page.read_text()
    for found in FENCE.finditer(text):
        language, _, name = found[2].strip().partition(" ")
        inner = re.sub(f"^{found[1]}", "", found[3], flags=re.MULTILINE)
        yield Block(page.name, text[: found.start()].count("\n") + 1, language, name, inner)


def bare(line):
    """A line of a script without the remark behind it."""
    return re.sub(r"\s+#.*$", "", line).rstrip()


def understood(line):
    """Let the command line read a command without running it; wrong verbs, options and values are errors."""
    words = shlex.split(line.replace(";", " ;"), comments=True)[1:]
    words = words[: next((i for i, word in enumerate(words) if word in ("||", "&&", "|", ">", ";", "&")), len(words))]
    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="tacit")
    while hasattr(command, "get_command"):
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"there is no verb {name!r}: {line}"
    command.make_context(name, words)


def script(block, ports):
    """What is given to bash of a block: lines that can't run left out, those that take long in small."""
    left_out, smaller = NOT_RUN.get(block.page, {}), SMALLER.get(block.page, {})
    lines = []
    for line in block.text.splitlines():
        said = bare(line)
        if said in left_out:
            continue
        lines.append(smaller.get(said, line))
    return with_ports("\n".join(lines), ports)


def with_ports(text, ports):
    for fixed, free in ports.items():
        text = re.sub(rf"\b{fixed}\b", free, text)
    return text


def compare(block, said):
    """Each line of a block that shows what was printed must come, in this order; `...` stands for anything."""
    rest = " ".join(said.split())
    for line in filter(None, map(str.strip, block.text.splitlines())):
        parts = [re.escape(" ".join(part.split())) for part in line.split("...")]
        found = re.search(r"\s*.*?\s*".join(parts), rest)
        assert found, f"{block}: {line!r} was not printed after the lines before it, but\n{said}"
        rest = rest[found.end() :]


def compare_about(block, said):
    """Each line must be among those that were printed, with the same words and about the same numbers."""
    number = re.compile(r"-?\b\d+\.\d+\b")
    printed = {" ".join(number.sub("#", line).split()): number.findall(line) for line in said.splitlines()}
    for line in filter(str.strip, block.text.splitlines()):
        words = " ".join(number.sub("#", line).split())
        assert words in printed, f"{block}: {line!r} was not printed, but\n{said}"
        shown, now = ([float(one) for one in some] for some in (number.findall(line), printed[words]))
        assert now == pytest.approx(shown, abs=0.02), f"{block}: {line!r} is now {now}"


def check_settings(block):
    """The keys at the top of a part of some settings are those of a party, a contract or a description of data."""
    known = {key for model in (Party, Contract, OneShotContract, Description) for key in model.model_fields}
    assert set(tomllib.loads(block.text)) <= known, block


def check_two_companies(folder, said):
    digests = re.findall(r"on all sides:\n(.*\n.*)\n", said)
    assert len(digests) == 2
    assert len(set(digests)) == 1
    check_runs(folder, "flights")


def check_runs(folder, *runs):
    for party in ("airline", "airport"):
        for run in runs:
            assert (folder / party / "runs" / run / "model.safetensors").exists()


CHECKS = {
    "tutorial-two-companies.md": check_two_companies,
    "howto-run-by-day.md": lambda folder, said: check_runs(folder, "day-0", "day-1"),
}
"""What is looked at when a page was followed to its end."""


@pytest.mark.usefixtures("seeds_stay")
@pytest.mark.parametrize("page", [page for page in PAGES if list(blocks(page))], ids=lambda page: page.name)
def test_a_page_can_be_followed(page, world, shell, free_port, monkeypatch, capsys):
    folder = world(WORLDS.get(page.name, ["empty"]))
    monkeypatch.chdir(folder)
    ports, said, everything = {port: free_port() for port in PORTS}, "", ""
    names = {"__name__": "docs"}  # of one Python session, from the page's first line to its last
    for block in blocks(page):
        if block.name == "printed":
            compare(block, said)
        elif block.name == "about":
            compare_about(block, said)
        elif block.name:
            path = folder / block.name
            assert path.resolve().is_relative_to(folder), block
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(with_ports(block.text, ports))
        elif block.language == "python":
            exec(compile(block.text, str(block), "exec"), names)
            said = capsys.readouterr().out
        elif block.language == "sh":
            code, said = shell(script(block, ports), folder)
            assert code == 0, f"{block}: exit code {code}\n{block.text}\n{said}"
            everything += said
        elif block.language == "toml":
            check_settings(block)
        else:
            assert block.language in READ_ONLY, f"{block}: say in {__file__} what becomes of {block.language!r}"
    if page.name in CHECKS:
        CHECKS[page.name](folder, everything)


@pytest.mark.parametrize("page", sorted({*NOT_RUN, *SMALLER}))
def test_what_is_not_run_as_it_stands_is_there_and_understood(page):
    path = next(one for one in PAGES if one.name == page)
    lines = {bare(line) for block in blocks(path) if block.language == "sh" for line in block.text.splitlines()}
    for line in (*NOT_RUN.get(page, ()), *SMALLER.get(page, ())):
        assert line in lines, f"{page} no longer says {line!r}: take it out of the table"
        if line.startswith("tacit "):
            understood(line)
    for line, small in SMALLER.get(page, {}).items():
        assert shlex.split(line)[:2] == shlex.split(small)[:2], f"{small!r} is another command than {line!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_between_the_lines_are_known(page):
    """Verbs and options of `tacit ...` within sentences; their values may be placeholders."""
    prose = FENCE.sub("", page.read_text())
    for words in (shlex.split(one) for one in re.findall(r"`tacit ([a-z][^`]*)`", prose, re.DOTALL)):
        command = typer.main.get_command(app)
        context = command.context_class(command, info_name="tacit")
        while hasattr(command, "get_command") and words:
            name, *words = words
            command = command.get_command(context, name)
            assert command is not None, f"{page.name}: there is no `tacit {name}`"
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        wanted = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert wanted - {"--help"} <= known, f"{page.name}: {name} has no {wanted - known}"


def test_what_the_harness_refuses():
    """The harness can fail: a block that prints something else, an unknown option, an unknown verb, a wrong key."""
    shown = Block("page.md", 1, "text", "printed", "one ... two\nthree\n")
    compare(shown, "zero\none and\ntwo\nthree")
    with pytest.raises(AssertionError, match="'three' was not printed"):
        compare(shown, "three one two")
    with pytest.raises(Exception, match="--no-such-option"):
        understood("tacit status --no-such-option")
    with pytest.raises(AssertionError, match="no verb 'frob'"):
        understood("tacit frob")
    with pytest.raises(AssertionError):
        check_settings(Block("page.md", 1, "toml", "", "limits = 0.6"))
    assert bare("tacit sweep   # all of it") == "tacit sweep"
    about = Block("page.md", 1, "text", "about", "norm 0.61 to 0.70\n")
    compare_about(about, "  norm   0.600 to 0.71")
    with pytest.raises(AssertionError, match="is now"):
        compare_about(about, "norm 0.55 to 0.70")
