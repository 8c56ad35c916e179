"""How prompts end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Row = dict[str, Any]
Make = Callable[..., Row]
Prompt = Callable[..., Row]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (200, "ok"), (302, "ok"), (400, "rejected"), (401, "rejected"), (403, "rejected"), (404, "rejected"),
        (413, "rejected"), (422, "rejected"), (429, "rate_limited"), (408, "timeout"), (504, "timeout"),
        (409, "error"), (418, "error"), (499, "client_abort"), (500, "error"), (502, "error"), (503, "error"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("spelt", ["http_status", "error_type"])
def test_by_http_status(make: Make, prompt: Prompt, code: int, status: str, spelt: str) -> None:
    failed = code >= 400
    if spelt == "error_type" and not failed:
        return
    value: Any = code if spelt == "http_status" else str(code)
    row = prompt(make("a", "", 0, 100, "client", failed=failed, **{spelt: value}))
    assert (row["status"], row["error_type"]) == (status, str(code) if failed else "")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("openai.RateLimitError", "rate_limited"), ("APITimeoutError", "timeout"), ("TimeoutError", "timeout"),
        ("AuthenticationError", "rejected"), ("BadRequestError", "rejected"), ("asyncio.CancelledError",
        "client_abort"), ("starlette.requests.ClientDisconnect", "client_abort"), ("GuardrailRaisedException",
        "blocked"), ("ContentPolicyViolationError", "blocked"), ("ContextLengthExceeded", "rejected"),
        ("DeadlineExceeded", "timeout"), ("ThrottlingException", "rate_limited"), ("RESOURCE_EXHAUSTED",
        "rate_limited"), ("AccessDeniedException", "rejected"), ("RuntimeError", "error"), ("_OTHER", "error"),
    ],
)  # fmt: skip
def test_by_the_name_of_an_error(make: Make, prompt: Prompt, name: str, status: str) -> None:
    row = prompt(make("a", "", 0, 100, "client", failed=True, error_type=name))
    assert (row["status"], row["error_type"]) == (status, name)


def test_a_bare_name_does_not_overrule_a_status_code(make: Make, prompt: Prompt) -> None:
    row = prompt(make("a", "", 0, 100, "client", failed=True, error_type="APIStatusError", http_status=429))
    assert (row["status"], row["error_type"]) == ("rate_limited", "APIStatusError")
    row = prompt(make("a", "", 0, 100, "client", failed=True, error_type="APITimeoutError", http_status=500))
    assert row["status"] == "timeout"


def test_an_error_without_a_name(make: Make, prompt: Prompt) -> None:
    row = prompt(make("a", "", 0, 100, "client", failed=True))
    assert (row["status"], row["error_type"]) == ("error", "")


@pytest.mark.parametrize(
    ("abort", "status"), [("client", "client_abort"), ("server", "server_abort"), ("timeout", "timeout")]
)
def test_who_ended_it_early(make: Make, prompt: Prompt, abort: str, status: str) -> None:
    row = prompt(make("a", "", 0, 100, "client", http_status=200, abort=abort))
    assert row["status"] == status


def test_a_hop_that_saw_the_client_go(make: Make, prompt: Prompt) -> None:
    gateway = make("b", "a", 10, 90, "gateway", service="gate", http_status=200, abort="client")
    assert prompt(make("a", "", 0, 100, "client", service="app"), gateway)["status"] == "client_abort"
    complete = make("a", "", 0, 100, "client", service="app", finish_reason="stop")
    assert prompt(complete, gateway)["status"] == "ok"


def test_the_engine_may_finish_what_nobody_reads(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", abort="client"),
        make("b", "a", 10, 90, "server", service="engine", finish_reason="stop", output_tokens=50),
    )
    assert row["status"] == "client_abort"


def test_a_proxys_hang_up_counts_unless_the_answer_was_complete(make: Make, prompt: Prompt) -> None:
    envoy = make("a", "", 0, 100, "gateway", service="envoy", http_status=200, abort="disconnect")
    assert prompt(envoy)["status"] == "client_abort"
    engine = make("b", "a", 10, 90, "server", service="engine", finish_reason="length")
    assert prompt(envoy, engine)["status"] == "ok"
    aborted = make("b", "a", 10, 90, "server", service="engine", finish_reason="abort")
    assert prompt(envoy, aborted)["status"] == "client_abort"


def test_blocked_by_a_filter(make: Make, prompt: Prompt) -> None:
    assert prompt(make("a", "", 0, 100, "client", finish_reason="content_filter"))["status"] == "blocked"


def test_an_error_inside_that_was_recovered_from_is_none(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", http_status=200, finish_reason="stop"),
        make("b", "a", 10, 20, "call", service="app", failed=True, http_status=500),
    )
    assert (row["status"], row["error_type"]) == ("ok", "")


def test_an_error_in_mid_stream_behind_a_200(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate", http_status=200, first_token_ns=40),
        make("b", "a", 10, 90, "call", service="gate", failed=True, error_type="ReadTimeout", first_token_ns=20),
    )
    assert (row["status"], row["error_type"]) == ("timeout", "ReadTimeout")


def test_attempts_that_were_made_again_say_nothing(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "router", service="route"),
        make(
            "b", "a", 10, 20, "call", service="route", failed=True, error_type="429", http_status=429, abort="timeout"
        ),
        make("c", "a", 30, 90, "call", service="route", http_status=200),
    )
    assert (row["status"], row["error_type"], row["retry_ns"]) == ("ok", "", 20)
