"""What files of settings are made of: values, tables that are checked as a whole, and all mistakes told at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError
from pydantic import model_validator as _model_validator
from pydantic_core import PydanticCustomError

from tacit.config.mistakes import lines
from tacit.errors import UsageError


def _once(values: tuple[str, ...]) -> tuple[str, ...]:
    twice = [value for value in dict.fromkeys(values) if values.count(value) > 1]
    if twice:
        raise ValueError(f"{', '.join(map(repr, twice))} stands there twice: keep one")
    return values


def as_set(values: tuple[str, ...]) -> tuple[str, ...]:
    """Sorted: the order of the file says nothing, so it does not change the contract either."""
    return tuple(sorted(_once(values)))


def _shape(value: Any) -> tuple[int, ...]:
    sizes = value if isinstance(value, list | tuple) else [value]
    if not 1 <= len(sizes) <= 3 or any(type(size) is not int or not 1 <= size <= 65_536 for size in sizes):
        raise ValueError(f"{value!r} is no shape of an embedding: write a width as 128, or up to three as [32, 8, 8]")
    return tuple(sizes)


def _visits(value: Any) -> Any:
    if value != "epochs" and (type(value) is not int or value < 1):
        raise ValueError(f'{value!r} is no number of visits: write "epochs", or a whole number from 1 on')
    return value


def _address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not host or not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f'{value!r} is no address: write host and port, for example "airline.example.com:7443"')
    return value


Whole = Annotated[int, Strict(), Field(ge=1)]
Count = Annotated[int, Strict(), Field(ge=0)]
Number = Annotated[float, Strict(), AfterValidator(lambda value: value + 0.0)]  # -0.0 is 0.0
Positive = Annotated[Number, Field(gt=0)]
Name = Annotated[str, Field(pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Text, ...], AfterValidator(_once)]
Shape = Annotated[tuple[int, ...], BeforeValidator(_shape)]
Visits = Annotated[int | Literal["epochs"], BeforeValidator(_visits)]
Address = Annotated[str, AfterValidator(_address)]
Day = Annotated[date, Strict()]
Switch = Annotated[bool, Strict()]
Factory = Annotated[str, Field(pattern=r"^[^:\s][^:]*:[A-Za-z_]\w*$")]
Problem = tuple[str, str]  # place and message


class Section(BaseModel):
    """Frozen; an unknown key is an error; what single fields can't know is checked in `_problems`, all at once."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def _problems(self) -> Iterator[Problem]:
        """What does not fit together: the key and the message with the next act."""
        yield from ()

    @_model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = list(self._problems())
        if problems:
            raise PydanticCustomError("problems", "{count} problems", {"count": len(problems), "problems": problems})
        return self


class File(Section):
    """A whole file of settings, which `FILE` is the usual name of."""

    FILE: ClassVar[str]

    @classmethod
    def read(cls, text: str, where: str | Path | None = None) -> Self:
        """From the text of the file; `where` is what messages call it."""
        where = where or cls.FILE
        try:
            return cls.of(tomllib.loads(text), where)
        except RecursionError:  # of the parser, of the check, or of showing what is wrong
            raise UsageError(
                f"{where} is nested too deeply: no setting has more than a few tables and lists in each other, take "
                "the others out"
            ) from None
        except UsageError:
            raise
        except ValueError as error:  # of TOML, or of a number with thousands of digits
            comma = re.search(r"^[ \t]*\w+[ \t]*=[ \t]*(\d+),(\d+)[ \t]*(#.*)?$", text, re.MULTILINE)
            hint = f"write {comma[1]}.{comma[2]} with a point" if comma else "correct that line"
            raise UsageError(f"{where} is not valid TOML: {error}: {hint}") from None

    @classmethod
    def of(cls, content: Mapping[str, Any], where: str | Path | None = None) -> Self:
        """From what stands in the file; `where` is what messages call it."""
        try:
            return cls.model_validate(dict(content))
        except ValidationError as error:
            found = [f"  {line}" for details in error.errors() for line in lines(cls, details)]
            raise UsageError(
                "\n".join([f"{where or cls.FILE} can't be used as it is:", *dict.fromkeys(found)])
            ) from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a file."""
        return cls.read(cls.text_of(path), path)

    @staticmethod
    def text_of(path: str | Path) -> str:
        """What stands in a file; what can't be read is a `UsageError`."""
        try:
            return Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} can't be read ({error.strerror}): look at the path and its permissions") from None
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8 text") from None
