"""How a command ends: a mistake is one line on the error stream and an exit code; a traceback is for `--debug` alone.

0 done; 1 a finding, a broken limit, a problem that a check found; 2 wrong use, or a file or disk that refuses; 3 a peer
or the network; 70 a bug of ours; 75 one side gave up: the same command, given again, resumes; 130 interrupted; 141
whoever read the output has gone away.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from tacit.errors import DiskFullError, GaveUpError, LimitError, LinkError, ProtocolError, TacitError

USAGE, PEER, BUG, AGAIN, INTERRUPTED, CLOSED = 2, 3, 70, 75, 130, 141
DEBUG = "TACIT_DEBUG"
"""The variable that asks for tracebacks; `--debug` sets it, so that processes which we start know it too."""


class StopError(Exception):
    """Ctrl-C, with what to say about it."""


class Verbs(TyperGroup):
    """All verbs; an interruption gets out of it as what it is."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise StopError("interrupted; give the same command again to start over") from None


@contextmanager
def interruptible(words: Callable[[], str]) -> Iterator[None]:
    """An interruption in here, by Ctrl-C or SIGTERM, is no accident: `words` says what is kept."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if here else None
    try:
        yield
    except KeyboardInterrupt:
        raise StopError(f"interrupted; {words()}") from None
    finally:
        if here:
            signal.signal(signal.SIGTERM, before)


def end_with(run: Callable[[], object]) -> NoReturn:
    """Run the command line and leave with its exit code, whatever happens in it."""
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        _look_away()
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):  # where typer or rich met it
            raise
        _look_away()
    except Exception as error:  # the outermost place: whatever was not foreseen is told in one line
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            traceback.print_exception(error)
        line, code = _told(error)
        if line:
            typer.echo(f"tacit: {line}", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _look_away() -> NoReturn:
    """Nobody reads our output any more, as after `| head`: what is left in the buffer goes nowhere, without a word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    sys.exit(CLOSED)


def _told(error: Exception) -> tuple[str, int]:
    if isinstance(error, TacitError):
        if isinstance(error, GaveUpError | DiskFullError):
            return str(error), AGAIN
        peer = isinstance(error, LinkError | ProtocolError)
        return str(error), PEER if peer else 1 if isinstance(error, LimitError) else USAGE
    if hasattr(error, "format_message"):  # what typer raises at a wrong command line
        return _misuse(error), USAGE
    if isinstance(error, StopError | typer.Abort):
        return str(error) or "interrupted", INTERRUPTED
    if isinstance(error, OSError):  # what the system refuses, to which file, and what to look at
        where = f"{error.filename}: " if error.filename is not None else ""
        owned = isinstance(error, PermissionError)
        remedy = "look at who owns it" if owned else "look at the disk, and at what is there"
        return f"{where}{error.strerror or error}: {remedy}, then give the same command again", USAGE
    return _bug(error), BUG


def _misuse(error: Any) -> str:
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has been shown
        return ""
    option, known = getattr(error, "option_name", None), getattr(error, "possibilities", None)
    if option in ("--debug", "--version"):
        said = f"{option} goes before the verb, as in `tacit {option}`"
    elif option is not None and known is not None:
        near = difflib.get_close_matches(option, known, n=1)
        said = f"there is no option {option}" + (f": did you mean {near[0]}?" if near else "")
    else:
        said = " ".join(str(error.format_message()).split()).rstrip(".").replace("Value error, ", "")
        said = said.replace(": Input should", ": it should")
        said = said[0].lower() + said[1:]
    path = error.ctx.command_path if getattr(error, "ctx", None) is not None else "tacit"
    return f"{said}{'' if said.endswith('?') else ';'} see `{path} --help`"


def _bug(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    package = Path(__file__).parents[1]
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(package)] or frames
    where = f" ({Path(ours[-1].filename).name}, line {ours[-1].lineno})" if ours else ""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"this is a bug in tacit, not a mistake of yours: {said}{where}; run it again with `tacit --debug` to see "
        "where it comes from, and report it"
    )
