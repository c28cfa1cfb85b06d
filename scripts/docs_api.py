"""The page of the Python names: signature, meaning and arguments, from the code and its docstrings."""

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
_WIDTH = 100  # of a signature; a longer one has a line for each argument

_INTRO = """\
What a program may use: the names in `tacit` itself, and those of the modules below it that the guides use. Everything
else may change without notice. Examples of all of it are in the guides; what a tensor's shape is stands behind its
meaning. `tacit --help` and the [settings](ref-party-toml.md) are pages of their own."""

_TREE = "Every message says what happened, to what, and what to do next."

# What stands on the page, part by part: the part's words, and its names with the module that they are shown under.
_PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "One-shot training in one process": (
        "The code that two companies run, without a wire: `tacit.one_shot(...)`.",
        ("tacit.one_shot", "tacit.one_shot.in_process.Result", "tacit.flips", "tacit.number_flips", "tacit.sums",
         "tacit.one_shot.flips.Flips", "tacit.one_shot.certificate.Certificate",
         "tacit.one_shot.findings.ReleaseAudit", "tacit.one_shot.findings.Finding"),
    ),
    "Split training in one process": (
        "Both parties' own code with a queue between them: for trying things out, and for attacking them.",
        ("tacit.simulate", "tacit.cut.simulate.Simulation", "tacit.cut.simulate.Epoch", "tacit.Recorder",
         "tacit.wire.record.Transcript"),
    ),
    "The two parties": (
        "What goes into `Folder.train`, and what a loop of your own calls.",
        ("tacit.LabelParty", "tacit.FeatureParty"),
    ),
    "Two companies": (
        "The same as the commands `tacit align`, `train`, `predict`, `audit` and `export`.",
        ("tacit.Folder", "tacit.company.folder.create", "tacit.company.align.Aligned", "tacit.company.train.train",
         "tacit.company.train.Trained", "tacit.serve.predict.predict"),
    ),
    "Protections of the gradient": (
        "Each has its own section in [the list of protections](ref-protections.md).",
        ("tacit.protection", "tacit.none", "tacit.iso", "tacit.max_norm", "tacit.marvell", "tacit.matched",
         "tacit.clip", "tacit.label_distance_correlation", "tacit.chain", "tacit.protect.gradient.marvell.solve"),
    ),
    "Protections of labels": ("Once, before any loss.", ("tacit.randomized_response",)),
    "Protections of the embedding": (
        "Each has its own section in [the list of them](ref-embedding-protections.md).",
        ("tacit.embedding_protection", "tacit.gaussian", "tacit.quantize", "tacit.distance_correlation",
         "tacit.adversarial", "tacit.noise_regularization"),
    ),
    "Attacks": (
        "The attacks themselves are in two lists, [on labels](ref-attacks.md) and [on inputs](ref-input-attacks.md).",
        ("tacit.attack", "tacit.attack_all", "tacit.worst", "tacit.audit.run.Finding", "tacit.audit.run.grant",
         "tacit.View", "tacit.audit.standard.on_batches", "tacit.audit.standard.on_visits",
         "tacit.audit.inputs.attack_inputs", "tacit.audit.inputs.InputFinding", "tacit.audit.inputs.mean_visits"),
    ),
    "Measures": (
        "Functions on tensors.",
        tuple(f"tacit.audit.metrics.{name}.{name}" for name in metrics.names()),
    ),
    "Models": (
        "Pairs of halves. Any other `nn.Module` does as well.",
        ("tacit.models.wide_deep", "tacit.models.mlp", "tacit.models.conv", "tacit.models.adam"),
    ),
    "What a protection or an attack of your own must be": (
        "Shapes, not base classes: whatever has these methods will do.",
        tuple(f"tacit.contracts.{name}" for name in (
            "Protection", "Protected", "Event", "EmbeddingProtection", "Regularizer", "Attack", "Known", "Guess",
            "InputAttack", "KnownInputs", "Reconstruction", "Estimate", "NoiseSource", "Message",
        )),
    ),
    "Reports": (
        "The fields of a report are in [its reference](ref-report.md).",
        ("tacit.views.report.rendering.write", "tacit.views.report.rendering.read"),
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
        return cls(_without_examples(words), named)

    @cached_property
    def summary(self) -> str:
        return _flat(self.words.split("\n\n")[0])


def _entries(block: str) -> Iterator[tuple[str, str]]:
    for name, text in re.findall(r"^    (\w+): ((?:.|\n {8}|\n\n {8})*)", block, re.MULTILINE):
        yield name, _flat(text)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _without_examples(words: str) -> str:
    """The docstring's own examples are for the interpreter; a guide shows more."""
    parts = (part.strip("\n") for part in words.split("\n\n"))
    return "\n\n".join(part for part in parts if part and not part.lstrip().startswith(">>>"))


def api() -> str:
    """The whole page."""
    parts = [f"{HEAD}# Python names", _INTRO]
    for title, (words, names) in _PARTS.items():
        parts += [f"## {title}", words, *(part for name in names for part in described(name))]
    tree = re.findall(r"::\n\n((?: {4}.*\n|\n)*)", inspect.getdoc(errors) or "")[0]
    parts += ["## Errors", f"```text\n{inspect.cleandoc(tree)}\n```", _TREE]
    lines = [(f"`tacit.errors.{name}`", cell(Text.of(getattr(errors, name)).summary)) for name in errors.__all__]
    return "\n\n".join([*parts, grid(("error", "when"), lines)]) + "\n"


def listed() -> set[str]:
    """The names of `tacit` that have a place on the page."""
    shown = {name.removeprefix("tacit.") for _, names in _PARTS.values() for name in names if name.count(".") == 1}
    return shown | {"TacitError", "__version__"}


def described(path: str) -> list[str]:
    """One name: heading, signature, words, arguments and, of a class, what it has and can do."""
    module, _, name = path.rpartition(".")
    found = getattr(tacit if module == "tacit" else importlib.import_module(module), name)
    if inspect.ismodule(found):  # a package that is called like the function of its name
        found = importlib.import_module(f"{path}.in_process").one_shot
    text = Text.of(found)
    parts = [f"### `{path}`", f"```text\n{signature(name, found)}\n```", text.words]
    for head in ("Args", "Attributes"):
        if text.named.get(head):
            lines = [(f"`{key}`", cell(said)) for key, said in text.named[head].items()]
            parts.append(grid(("argument" if head == "Args" else "attribute", "meaning"), lines))
    for head in ("Returns", "Raises"):
        if text.named.get(head):
            said = "; ".join(f"`{key}`: {words}" if key else words for key, words in text.named[head].items())
            parts.append(f"{head}: {said}")
    lines = list(_members(found)) if inspect.isclass(found) else []
    return parts + ([grid(("it has", "what it is"), lines)] if lines else [])


def _members(found: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties of the class itself, with the first words about each."""
    for name, member in vars(found).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") or not inspect.getdoc(plain) or not _ours(found, plain):
            continue
        shown = f"`{name}`" if not inspect.isfunction(plain) else f"`{signature(name, plain, bound=True)}`"
        yield cell(" ".join(shown.split())), cell(Text.of(plain).summary)


def _ours(found: type, member: object) -> bool:
    """A method or property: attributes are told by the docstring of the class."""
    return inspect.isfunction(member) or isinstance(member, property | cached_property)


def signature(name: str, found: Callable[..., Any], *, bound: bool = False) -> str:
    """The call with its arguments, their types and defaults, as in the code."""
    told = inspect.signature(found)
    arguments, star = [], False
    for place, one in enumerate(told.parameters.values()):
        if bound and place == 0 and one.name in ("self", "cls"):
            continue
        if one.kind is one.VAR_POSITIONAL:
            star = True
        if one.kind is one.KEYWORD_ONLY and not star:
            arguments.append("*")
            star = True
        arguments.append(_argument(one))
    back = "" if told.return_annotation in (told.empty, None, "None") else f" -> {_type(told.return_annotation)}"
    line = f"{name}({', '.join(arguments)}){back}"
    if len(line) <= _WIDTH or bound:
        return line
    return f"{name}(\n    " + ",\n    ".join(arguments) + f",\n){back}"


def _argument(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    typed = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
    if one.default is one.empty:
        return f"{stars}{one.name}{typed}"
    default = "..." if repr(one.default).startswith("<") else repr(one.default)
    return f"{stars}{one.name}{typed}{' = ' if typed else '='}{default}"


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
