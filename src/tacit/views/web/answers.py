"""Answers that a client which has them already need not get again, and errors in one shape."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response


def as_json(content: Any) -> bytes:
    """Compact JSON in ASCII; a number that is not finite is null, for JSON knows none."""
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite(content), allow_nan=False, separators=(",", ":")).encode()


def tagged(
    request: Request, body: bytes, *, media: str = "application/json", of: bytes | None = None, **headers: str
) -> Response:
    """An answer with a tag, or a short one where the client has the same already."""
    digest = hashlib.blake2b(body if of is None else of, digest_size=12).hexdigest()
    extra = {"ETag": f'W/"{digest}"', **{name.replace("_", "-"): value for name, value in headers.items()}}
    had = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if f'"{digest}"' in had:
        return Response(status_code=304, headers=extra)
    return Response(body, media_type=media, headers=extra)


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def error(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """What went wrong, for programs and for the page."""
    return JSONResponse({"error": text}, status_code=status, headers=headers)
