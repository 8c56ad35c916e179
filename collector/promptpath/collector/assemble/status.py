"""How a prompt ended: from HTTP status codes, error types and who hung up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from promptpath.collector.assemble.schema import Bools, Ints
from promptpath.semconv import Abort, Status

STATUS_NAMES: Final[tuple[str, ...]] = tuple(str(s) for s in Status)
_CODE: Final = {status: STATUS_NAMES.index(status) for status in Status}

#: A hang-up that a proxy saw without knowing whether the answer was complete; rules give it, shims never do.
DISCONNECT: Final = "disconnect"

#: Error types, in the words of exceptions and of API errors, and what they say; the first that matches.
_ERRORS: Final[tuple[tuple[re.Pattern[str], Status], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), status)
    for pattern, status in (
        (r"guardrail|content_?filter|content_?policy|moderation", Status.BLOCKED),
        (r"rate_?limit|too_?many_?requests|quota|throttl|resource_?exhausted", Status.RATE_LIMITED),
        (r"time_?d?_?out|deadline", Status.TIMEOUT),
        (r"cancell?ed|client_?disconnect|generator_?exit|client_?abort", Status.CLIENT_ABORT),
        (
            r"authenticat|permission_?denied|access_?denied|unauthori[sz]ed|forbidden|invalid_?request|bad_?request|not_?found"
            r"|unprocessable|validation|context_?length|invalid_?argument",
            Status.REJECTED,
        ),
    )
)
_FINISH_BLOCKED: Final = re.compile(r"content_?filter|guardrail|safety|blocked", re.IGNORECASE)


def status_of_http(code: int) -> Status | None:
    """What an HTTP status code says; None below 400, which says nothing of the stream that follows."""
    if code < 400:
        return None
    if code == 429:
        return Status.RATE_LIMITED
    if code in (400, 401, 403, 404, 413, 422):
        return Status.REJECTED
    if code in (408, 504):
        return Status.TIMEOUT
    if code == 499:
        return Status.CLIENT_ABORT
    return Status.ERROR


def status_of_error(error_type: str) -> Status | None:
    """What an `error.type` says: an HTTP status code or the name of an exception; None where there is no error."""
    if not error_type:
        return None
    if error_type.isdecimal() and len(error_type) == 3:
        return status_of_http(int(error_type))
    return next((status for pattern, status in _ERRORS if pattern.search(error_type)), Status.ERROR)


@dataclass
class Evidence:
    """What the spans of m prompts say about their end, shape (m,) each; texts are codes into lists whose first entry
    is ''.

    Each at the root (`root_*`) and at the outermost span that says anything (`any_*`); attempts made again say nothing.
    http is 0 where no status code is known.
    """

    abort_names: list[str]
    root_abort: Ints
    any_abort: Ints
    error_names: list[str]
    root_error: Ints
    any_error: Ints
    root_http: Ints
    any_http: Ints
    root_failed: Bools
    any_failed: Bools
    finish_names: list[str]
    root_finish: Ints
    any_finish: Ints


@dataclass
class Endings:
    """status: codes into STATUS_NAMES; error: codes into the evidence's error_names; http: status code or 0; shape
    (m,).

    error and http are those that decided, for `error_type`.
    """

    status: Ints
    error: Ints
    http: Ints


def endings(evidence: Evidence) -> Endings:
    """How each prompt ended.

    In order: a hang-up before the answer was complete, a guardrail, the root's error type, an HTTP status, an error
    without either. What a span further in says counts only where the root says nothing and no complete answer was
    seen: an error that somebody recovered from is none.
    """
    finishes = np.array([bool(name) and name != "abort" for name in evidence.finish_names])
    complete = finishes[evidence.any_finish]
    inner = ~complete & ~evidence.root_failed
    error = np.where(inner & (evidence.root_error == 0), evidence.any_error, evidence.root_error)
    http = np.where((inner | evidence.root_failed) & (evidence.root_http == 0), evidence.any_http, evidence.root_http)
    failed = evidence.root_failed | (inner & evidence.any_failed)

    by_error = np.array([_code(status_of_error(name)) for name in evidence.error_names], dtype=np.int64)
    distinct, where = np.unique(http, return_inverse=True)
    by_http = np.array([_code(status_of_http(int(value))) for value in distinct] or [-1], dtype=np.int64)[where]
    status = np.where(failed, _CODE[Status.ERROR], _CODE[Status.OK])
    for code in (by_error[error], by_http, by_error[evidence.root_error]):
        # A name that says nothing more than "error" does not overrule a status code that does.
        status = np.where((code >= 0) & ((code != _CODE[Status.ERROR]) | (status == _CODE[Status.OK])), code, status)
    blocked = np.array([bool(_FINISH_BLOCKED.search(name)) for name in evidence.finish_names])
    status = np.where(blocked[evidence.any_finish], _CODE[Status.BLOCKED], status)
    hung_up = _hung_up(evidence, finishes[evidence.root_finish], complete)
    return Endings(np.where(hung_up >= 0, hung_up, status), error, http)


def _hung_up(evidence: Evidence, complete_at_root: Bools, complete: Bools) -> Ints:
    """The status of prompts whose answer somebody ended early, -1 for the others."""
    # Whoever sits at the root and saw the answer's end knows better than a hop that saw the connection close after it.
    inner = np.where(complete_at_root, 0, evidence.any_abort)
    abort = np.where(evidence.root_abort != 0, evidence.root_abort, inner)
    early = np.array([_abort_code(name, False) for name in evidence.abort_names], dtype=np.int64)[abort]
    after = np.array([_abort_code(name, True) for name in evidence.abort_names], dtype=np.int64)[abort]
    return np.where(complete, after, early)


def _code(status: Status | None) -> int:
    return -1 if status is None else _CODE[status]


def _abort_code(name: str, complete: bool) -> int:
    """What `promptpath.abort`, or a proxy's note of a hang-up, says; -1 where nothing."""
    if name == DISCONNECT:
        return -1 if complete else _CODE[Status.CLIENT_ABORT]
    known = {
        Abort.CLIENT: Status.CLIENT_ABORT,
        Abort.SERVER: Status.SERVER_ABORT,
        Abort.TIMEOUT: Status.TIMEOUT,
    }
    return next((_CODE[status] for abort, status in known.items() if abort == name), -1)
