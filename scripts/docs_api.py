"""The page of the Python names: call, meaning and arguments, each said once, from the code and its docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tacit
from docs_tables import HEAD, cell, grid
from tacit import errors
from tacit.audit import metrics

_HEADS = ("Args", "Attributes", "Returns", "Raises")
_WIDTH = 100  # of a signature; the types of a longer one stand in the table of its arguments

_INTRO = """\
These names are public: those in `tacit` itself, and those of its modules that the guides and the examples use. All
others may change without notice. A tensor's shape stands in brackets behind its meaning. Of classes whose fields stand
by name alone `python -m pydoc NAME` has the meaning. The guides have examples; the [command line](ref-cli.md) and the
[settings](ref-party-toml.md) have pages of their own."""

_TREE = "They are in `tacit.errors`. Every message says what happened, to what, and what to do next."

_LISTED_ELSEWHERE = ("tacit.split.protect.gradient.", "tacit.split.protect.embedding.", "tacit.audit.metrics.")
_WHOLE = (
    "tacit.exchange.in_process.",
    "tacit.exchange.model.",
    "tacit.contracts.",
    "tacit.split.record.",
    "tacit.View",
)
"""Of these classes every field stands here with its meaning; of others by name, and `pydoc` has the meaning."""

_FOLDER = {"config", "contract", "one_shot", "draft_contract", "trust", "align", "train", "audit", "export"}
"""What a program needs of `tacit.Folder`; its other methods are for the package."""

# What stands on the page, part by part: the part's words, and its names with the module that they are shown under.
_PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "One-shot training in one process": (
        "The code that two companies run, without a wire: `tacit.one_shot(...)`.",
        ("tacit.one_shot", "tacit.exchange.in_process.Result", "tacit.load",
         "tacit.exchange.model.Model", "tacit.flips", "tacit.number_flips",
         "tacit.labels.flips.Flips", "tacit.labels.label_bound.LabelBound",
         "tacit.exchange.findings.ReleaseAudit", "tacit.exchange.findings.Finding"),
    ),
    "Split training in one process": (
        "Both parties' own code with a queue between them: for trying things out, and for attacking them.",
        ("tacit.simulate", "tacit.split.simulate.Simulation", "tacit.split.simulate.Epoch", "tacit.Recorder",
         "tacit.split.record.Transcript"),
    ),
    "In a training loop of your own": (
        "The cut alone, as a module; [how to](howto-your-own-loop.md).",
        ("tacit.Cut",),
    ),
    "The two parties": (
        "What goes into `Folder.train`, and what a loop of your own calls.",
        ("tacit.LabelParty", "tacit.FeatureParty"),
    ),
    "Two companies": (
        "The same as the commands `tacit align`, `train`, `predict`, `serve`, `audit` and `export`.",
        ("tacit.Folder", "tacit.company.folder.create", "tacit.company.align.Aligned", "tacit.split.train.train",
         "tacit.split.train.Trained", "tacit.serve.predict.predict", "tacit.serve.serve.serve"),
    ),
    "Protections of the gradient": (
        "Their arguments are in [the list of protections](ref-protections.md).",
        ("tacit.none", "tacit.iso", "tacit.max_norm", "tacit.marvell", "tacit.matched", "tacit.clip",
         "tacit.chain", "tacit.protection", "tacit.split.protect.gradient.marvell.solve"),
    ),
    "Protections of labels": ("Once, before any loss.", ("tacit.randomized_response",)),
    "Protections of the embedding": (
        "Their arguments are in [the list of them](ref-protections.md#protections-of-the-embedding).",
        ("tacit.gaussian", "tacit.distance_correlation", "tacit.adversarial",
         "tacit.noise_regularization", "tacit.embedding_protection"),
    ),
    "Attacks": (
        "The attacks themselves are in [a list of their own](ref-attacks.md).",
        ("tacit.attack", "tacit.attack_all", "tacit.worst", "tacit.audit.run.Finding", "tacit.audit.run.grant",
         "tacit.View", "tacit.audit.standard.on_batches", "tacit.audit.standard.on_visits",
         "tacit.audit.inputs.attack_inputs", "tacit.audit.inputs.InputFinding", "tacit.audit.inputs.mean_visits"),
    ),
    "Measures": (
        "Functions on tensors; their docstrings have the whole of each.",
        tuple(f"tacit.audit.metrics.{name}.{name}" for name in metrics.names()),
    ),
    "Models": (
        "Pairs of halves. Any other `nn.Module` does as well.",
        ("tacit.split.models.wide_deep", "tacit.split.models.conv", "tacit.split.models.adam"),
    ),
    "What a protection or an attack of your own must be": (
        "Shapes, not base classes: whatever has these methods will do.",
        ("tacit.split.protect.check_protection", *(f"tacit.contracts.{name}" for name in (
            "Protection", "Protected", "Event", "EmbeddingProtection", "Regularizer", "Attack", "Known", "Guess",
            "InputAttack", "KnownInputs", "Reconstruction", "Estimate", "NoiseSource", "Message",
        ))),
    ),
    "Reports": (
        "The fields of a report are in [its reference](ref-report.md).",
        ("tacit.report.rendering.write", "tacit.report.rendering.read", "tacit.report.mlflow.log_report"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A docstring, read: its words, and for each head what is said about each name."""

    words: str
    named: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, described: object) -> Text:
        words, *rest = re.split(rf"^({'|'.join(_HEADS)}):\n", inspect.getdoc(described) or "", flags=re.MULTILINE)
        named = {}
        for head, block in zip(rest[::2], rest[1::2], strict=True):
            inside, _, after = block.partition("\n\n")
            words += f"\n\n{after}" if after else ""
            named[head] = dict(_entries(inside)) if head in ("Args", "Attributes", "Raises") else {"": _flat(inside)}
        if inspect.isclass(described) and "Attributes" not in named and (beside := dict(_beside(described))):
            named["Attributes"] = beside
        return cls(_without_examples(words), named)

    @cached_property
    def summary(self) -> str:
        return _flat(self.words.split("\n\n")[0])


def _entries(block: str) -> Iterator[tuple[str, str]]:
    for name, text in re.findall(r"^    (\w+): ((?:.|\n {8}|\n\n {8})*)", block, re.MULTILINE):
        yield name, _flat(text)


def _beside(described: type) -> Iterator[tuple[str, str]]:
    """What comments say of the fields of a class: behind each, or in the lines above it."""
    above: list[str] = []
    for line in inspect.getsource(described).split("\n"):
        if comment := re.fullmatch(r" {4}# (.*)", line):
            above.append(comment[1])
            continue
        if found := re.fullmatch(r" {4}(\w+): [^#]*?(?:  # (.*))?", line):
            said = " ".join([*above, *([found[2]] if found[2] else [])])
            if said:
                yield found[1], said if said.endswith(")") else f"{said}."
        above = []


def _flat(text: str) -> str:
    return " ".join(text.split())


def _without_examples(words: str) -> str:
    """The docstring's own examples are for the interpreter; a guide shows more."""
    parts = (part.strip("\n") for part in words.split("\n\n"))
    return "\n\n".join(part for part in parts if part and not part.lstrip().startswith(">>>"))


def api() -> str:
    """The whole page: in each part what is called, name by name, then what one only reads, in one table."""
    parts = [f"{HEAD}# Python names", _INTRO]
    for title, (words, names) in _PARTS.items():
        parts += [f"## {title}", words]
        short = [name for name in names if _is_listed_elsewhere(name)]
        if short:
            parts.append(grid(("name", "what it does"), [_short(name) for name in short]))
        read = [name for name in names if inspect.isclass(_at(name)) and not _called(name)[0]]
        parts += [part for name in names if name not in (*short, *read) for part in described(name)]
        if read:
            parts.append(grid(("it has", "what it is"), [line for name in read for line in _read(name)]))
    tree = re.findall(r"::\n\n((?: {4}.*\n|\n)*)", inspect.getdoc(errors) or "")[0]
    return "\n\n".join([*parts, "## Errors", _TREE, f"```text\n{inspect.cleandoc(tree)}\n```"]) + "\n"


def listed() -> set[str]:
    """The names of `tacit` that have a place on the page."""
    shown = {name.removeprefix("tacit.") for _, names in _PARTS.values() for name in names if name.count(".") == 1}
    return shown | {"TacitError", "__version__"}


def _at(path: str) -> Any:
    """What a name on the page stands for."""
    module, _, name = path.rpartition(".")
    named = getattr(tacit if module == "tacit" else importlib.import_module(module), name)
    if inspect.ismodule(named):  # a package that is called like the function of its name
        return importlib.import_module(f"{path}.in_process").one_shot
    return named


def _is_listed_elsewhere(path: str) -> bool:
    """A protection or a metric: the function of its module's name."""
    home = _at(path).__module__
    return home.startswith(_LISTED_ELSEWHERE) and home.endswith(f".{path.rpartition('.')[2]}")


def _short(path: str) -> tuple[str, str]:
    return f"`{path}`", cell(Text.of(_at(path)).summary)


def _read(path: str) -> Iterator[tuple[str, str]]:
    """A line for a class that is read, not made; then one for each thing that it has, or their names alone."""
    text = Text.of(_at(path))
    words, lines = cell(_flat(text.words)), list(_has(path, _at(path), text))
    if path.startswith(_WHOLE):
        yield f"**`{path}`**", words
        yield from lines
    else:
        names = ", ".join(f"`{re.split('[:(`]', name[1:])[0]}`" for name, _ in lines)
        yield f"**`{path}`**", f"{words} It has {names}."


def described(path: str) -> list[str]:
    """One name: heading, call, words, arguments and, of a class, what it has and can do."""
    named = _at(path)
    text = Text.of(named)
    call, typed = _called(path)
    words = "\n".join(text.words.split("\n\n", maxsplit=1))
    parts = [f"### `{path}`", f"`{call}`: {words}" if call else words]
    types = {key: _typed(one) for key, one in inspect.signature(named).parameters.items()} if typed else {}
    if "Args" in text.named:
        lines = [(f"`{key}`", *_code(types, key), cell(said)) for key, said in text.named["Args"].items()]
        parts.append(grid(("argument", *(("type",) if types else ()), "meaning"), lines))
    for head in ("Returns", "Raises"):
        if text.named.get(head):
            said = "; ".join(f"`{key}`: {words}" if key else words for key, words in text.named[head].items())
            parts.append(f"{head}: {said}")
    lines = list(_has(path, named, text)) if inspect.isclass(named) else []
    return parts + ([grid(("it has", "what it is"), lines)] if lines else [])


def _called(path: str) -> tuple[str, bool]:
    """How it is called, and whether its types are left to the table; of a class that is read, not made, nothing."""
    name, named = path.rpartition(".")[2], _at(path)
    text = Text.of(named)
    if inspect.isclass(named) and ("Attributes" in text.named or "*args" in str(inspect.signature(named))):
        return "", False
    whole = signature(name, named)
    if len(whole) <= _WIDTH or "Args" not in text.named:
        return whole, False
    names = ", ".join(_names(named))
    back = whole.rpartition(") -> ")[2] if ") -> " in whole else ""
    return f"{name}({names})" + (f" -> {back}" if back else ""), True


def _names(named: Any) -> Iterator[str]:
    """The names of the arguments in their order, with a star before those that are keywords."""
    star = False
    for one in inspect.signature(named).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        yield one.name


def _typed(one: inspect.Parameter) -> str:
    """The type of an argument, with its default."""
    return _argument(one).removeprefix(one.name).removeprefix(": ")


def _code(types: Mapping[str, str], key: str) -> tuple[str, ...]:
    return (f"`{cell(types[key])}`",) if types else ()


def _has(path: str, described: type, text: Text) -> Iterator[tuple[str, str]]:
    """The attributes of a class that its docstring tells, then its own public methods and properties."""
    made = inspect.signature(described).parameters
    for name, said in text.named.get("Attributes", {}).items():
        yield f"`{cell(_argument(made[name]) if name in made else name)}`", cell(said)
    said_before = set()
    for name, member in vars(described).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        said = Text.of(plain).summary
        if name.startswith("_") or not inspect.getdoc(plain) or not _ours(plain) or said in said_before:
            continue
        if path == "tacit.Folder" and name not in _FOLDER:
            continue
        said_before.add(said)
        shown = signature(name, plain, bound=True) if inspect.isfunction(plain) else name
        yield cell(f"`{' '.join(shown.split())}`"), cell(said)


def _ours(member: object) -> bool:
    """A method or property: attributes are told by the docstring of the class."""
    return inspect.isfunction(member) or isinstance(member, property | cached_property)


def signature(name: str, called: Callable[..., Any], *, bound: bool = False) -> str:
    """The call with its arguments, their types and defaults, as in the code, in one line."""
    made = inspect.signature(called)
    arguments, star = [], False
    for place, one in enumerate(made.parameters.values()):
        if bound and place == 0 and one.name in ("self", "cls"):
            continue
        if one.kind is one.VAR_POSITIONAL:
            star = True
        if one.kind is one.KEYWORD_ONLY and not star:
            arguments.append("*")
            star = True
        arguments.append(_argument(one))
    back = "" if made.return_annotation in (made.empty, None, "None") else f" -> {_type(made.return_annotation)}"
    return f"{name}({', '.join(arguments)}){back}"


def _argument(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    typed = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
    if one.default is one.empty:
        return f"{stars}{one.name}{typed}"
    default = "..." if repr(one.default).startswith("<") else repr(one.default)
    return f"{stars}{one.name}{typed}{' = ' if typed else '='}{default}"


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
