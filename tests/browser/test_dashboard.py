"""The dashboard of a real run in a browser: what it shows is what storage holds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from promptpath.dashboard import format as fmt
from promptpath.semconv import Part

from .conftest import AGENT_CALLS, Run
from .seed import Sent

pytestmark = pytest.mark.timeout(180)

#: One mark of data in a chart, wherever Vega draws it as SVG.
BARS = ".mark-rect.role-mark path"


def stored(run: Run) -> int:
    """How many prompts storage holds now."""
    return int(run.sql("SELECT count() AS n FROM prompts")[0]["n"])


def settled(page: Any) -> None:
    """Waits until Streamlit has finished the run that the last action began."""
    page.wait_for_function("document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'")


def query(page: Any) -> dict[str, list[str]]:
    """The parameters of the page's address."""
    return parse_qs(urlsplit(page.url).query)


def metric(page: Any, place: str, label: str) -> str:
    """The figure under a label in the row of headline figures."""
    boxes = page.locator(f".st-key-{place} [data-testid=stMetric]")
    box = boxes.filter(has=page.get_by_text(label, exact=True))
    return str(box.locator("[data-testid=stMetricValue]").inner_text()).strip()


def prompt_rows(page: Any) -> Any:
    return page.locator(".st-key-prompts-table tbody tr")


def listed(page: Any) -> list[str]:
    """Ids of the prompts in the table."""
    ids: list[str] = prompt_rows(page).evaluate_all("rows => rows.map(row => row.dataset.prompt)")
    return ids


def becomes(look: Callable[[], Any], expected: Any) -> None:
    """Polls until what is on the page is what it should be; fails with the difference."""
    deadline = time.monotonic() + 20
    while (seen := look()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert seen == expected


def choose(page: Any, label: str, option: str) -> None:
    """Takes one option of a selectbox or multiselect by its label."""
    page.get_by_label(label, exact=True).locator("visible=true").first.click()
    page.get_by_role("option", name=option, exact=True).click()
    page.keyboard.press("Escape")


def test_the_root_leads_to_an_overview_with_the_figures_of_storage(run: Run, page: Any) -> None:
    page.goto(run.url)
    page.wait_for_url("**/overview**")
    page.locator(".st-key-card-ttft svg.marks").wait_for()
    said = run.sql(
        "SELECT count() AS prompts, countIf(status != 'ok') AS failed, quantile(0.5)(ttft_ns) AS p50,"
        " quantile(0.99)(ttft_ns) AS p99, quantile(0.5)(tpot_ns) AS tpot FROM prompts"
    )[0]
    assert metric(page, "headline", "Prompts") == str(said["prompts"])
    assert said["prompts"] >= len(run.sent)
    assert metric(page, "headline", "TTFT p50") == fmt.duration(said["p50"])
    assert metric(page, "headline", "TTFT p99") == fmt.duration(said["p99"])
    assert metric(page, "headline", "TPOT p50") == fmt.duration(said["tpot"])
    assert metric(page, "headline", "Not ok") == fmt.percent(said["failed"] / said["prompts"])


def test_every_chart_of_the_overview_is_drawn(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/overview")
    for chart in ("ttft", "breakdown", "heat", "itl", "prompts", "tokens", "status", "tpot"):
        marks = page.locator(f".st-key-card-{chart} svg.marks :is(.mark-line, .mark-rect).role-mark path")
        marks.first.wait_for(state="attached")
        assert marks.count() > 0


def test_prompts_are_listed_newest_first_with_their_figures(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/prompts")
    prompt_rows(page).first.wait_for()
    said = run.sql(
        "SELECT prompt_id, ttft_ns, e2e_ns, status FROM prompts ORDER BY start_time DESC, prompt_id LIMIT 50"
    )
    assert prompt_rows(page).evaluate_all("rows => rows.map(row => row.dataset.prompt)") == [
        row["prompt_id"] for row in said
    ]
    for column, texts in {
        "ttft": [fmt.duration(row["ttft_ns"]) for row in said],
        "e2e": [fmt.duration(row["e2e_ns"]) for row in said],
        "status": [row["status"] for row in said],
    }.items():
        assert page.locator(f".st-key-prompts-table td[data-column={column}]").all_inner_texts() == texts
    # A prompt that did not stream has no TTFT, and is not one of 0 ms.
    assert "—" in page.locator(".st-key-prompts-table td[data-column=ttft]").all_inner_texts()


def test_a_filter_narrows_the_list_and_stands_in_the_address(run: Run, page: Any, browser: Any) -> None:
    page.goto(f"{run.url}/prompts")
    prompt_rows(page).first.wait_for()
    choose(page, "Status", "client_abort")
    expected = run.sql("SELECT count() AS n FROM prompts WHERE status = 'client_abort'")[0]["n"]
    page.get_by_text(f"of {fmt.plural(expected, 'prompt')}").wait_for()
    assert query(page)["status"] == ["client_abort"]
    becomes(lambda: set(page.locator("td[data-column=status]").all_inner_texts()), {"client_abort"})

    # The address alone shows somebody else the same.
    other = browser.new_context().new_page()
    other.goto(page.url)
    other.get_by_text(f"of {fmt.plural(expected, 'prompt')}").wait_for()
    becomes(lambda: set(other.locator("td[data-column=status]").all_inner_texts()), {"client_abort"})
    other.context.close()

    # And it comes along to the overview.
    page.get_by_role("link", name="Overview").click()
    page.locator(".st-key-card-ttft svg.marks").wait_for()
    assert metric(page, "headline", "Prompts") == str(expected)
    assert query(page)["status"] == ["client_abort"]


def test_sorting_and_paging_walk_through_all_prompts_once(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/prompts?sort=TTFT&rows=25")
    said = [row["prompt_id"] for row in run.sql(
        "SELECT prompt_id FROM prompts ORDER BY ttft_ns DESC NULLS LAST, start_time DESC, prompt_id"
    )]  # fmt: skip
    for number in range(1, 4):
        page.get_by_text(f"{(number - 1) * 25 + 1}–{min(number * 25, len(said))} of").wait_for()
        becomes(lambda: listed(page), said[(number - 1) * 25 : number * 25])
        if number < 3:
            page.locator(".st-key-page [data-testid=stNumberInputStepUp]").click()
    assert query(page)["page"] == ["3"]


@pytest.mark.parametrize("kind", ["plain", "retried", "stalled", "queued"])
def test_a_prompts_page_shows_what_storage_holds(run: Run, page: Any, kind: str) -> None:
    sent = run.one(kind)
    page.goto(f"{run.url}/prompts?rows=200")
    page.locator(f"tr[data-prompt='{sent.prompt_id}'] a").click()
    page.wait_for_url(f"**/prompt?id={sent.prompt_id}")
    page.locator(".st-key-card-waterfall svg.marks").wait_for()
    settled(page)
    row = run.sql(f"SELECT * FROM prompts WHERE prompt_id = '{sent.prompt_id}'")[0]

    assert row["ttft_ns"] == sent.ttft_ns
    assert metric(page, "figures", "TTFT") == fmt.duration(row["ttft_ns"])
    assert metric(page, "figures", "End to end") == fmt.duration(row["e2e_ns"])
    assert metric(page, "figures", "Stalls") == str(row["stalls"]) == ("1" if kind == "stalled" else "0")
    assert f"Attempts\n{row['attempts']}" in page.locator(".st-key-facts").inner_text()

    # The breakdown: exact in each row's data, and adding up in what is shown.
    table = page.get_by_role("table", name="TTFT by part")
    exact = {part: int(table.locator(f"tr[data-part={part}]").get_attribute("data-ns")) for part in Part}
    assert exact == {part: row[f"ttft_{part}_ns"] for part in Part}
    shown = {part: table.locator(f"tr[data-part={part}] td.n").first.inner_text() for part in (*Part, "ttft")}
    microseconds = {part: round(float(text.replace(",", "")) * 1000) for part, text in shown.items()}
    assert sum(microseconds[part] for part in Part) == microseconds["ttft"] == round(row["ttft_ns"] / 1000)

    # One row of the waterfall a stage span, each with its pieces.
    spans = len(set(row["segments.span_id"]))
    labels = page.locator(".st-key-card-waterfall svg.marks .role-axis-label text").all_text_contents()
    names = [text.strip("\u200b\u2003") for text in labels if not re.fullmatch(r"[\d,.]+ (ms|s|µs)", text)]
    assert len(names) == spans == sent.spans
    assert page.locator(f".st-key-card-waterfall [aria-label='Waterfall of {spans} spans across 4 hops']").count() > 0
    assert {"demo-client · client", "demo-gateway · gateway", "demo-engine · server", "prefill"} <= set(names)
    assert ("call #1 ✗ 503" in names) == (kind == "retried")
    assert page.locator(f".st-key-card-waterfall svg.marks {BARS}").count() >= spans

    # Each gap is a mark of the token timeline, a stall one that is named.
    assert page.locator(".st-key-card-tokens svg.marks .mark-rule.role-mark line").count() >= len(sent.gaps_us)
    assert (page.locator(".st-key-card-tokens").get_by_text("1 stall").count() > 0) == (kind == "stalled")


def test_a_trace_id_and_the_beginning_of_an_id_find_the_prompt(run: Run, page: Any) -> None:
    sent = run.one("plain")
    for text in (sent.trace_id, sent.prompt_id[:12], f" {sent.prompt_id.upper()} "):
        page.goto(f"{run.url}/prompt")
        box = page.get_by_label("Prompt id or trace id")
        box.fill(text)
        box.press("Enter")
        page.locator(".st-key-card-waterfall svg.marks").wait_for()
        assert metric(page, "figures", "TTFT") == fmt.duration(sent.ttft_ns)


def test_filters_wait_while_one_prompt_is_looked_at(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/prompts?status=client_abort")
    page.locator("tbody tr").first.wait_for()
    for number in (0, 1):
        becomes(lambda: set(page.locator("td[data-column=status]").all_inner_texts()), {"client_abort"})
        wanted = listed(page)[number]
        prompt_rows(page).nth(number).locator("a").click()
        page.wait_for_url(f"**/prompt?id={wanted}")
        page.locator(".st-key-card-waterfall svg.marks").wait_for()
        page.get_by_role("link", name="Prompts", exact=True).click()
        page.wait_for_url("**/prompts?status=client_abort")


def test_a_trace_of_an_agent_run_lets_one_choose_among_its_prompts(run: Run, page: Any) -> None:
    calls = run.sent[-AGENT_CALLS:]
    assert len({sent.trace_id for sent in calls}) == 1
    page.goto(f"{run.url}/prompt?id={calls[0].trace_id}")
    page.get_by_text(f"stands for {AGENT_CALLS} prompts").wait_for()
    rows = page.locator(".st-key-several-table tbody tr")
    rows.first.wait_for()
    assert rows.evaluate_all("rows => rows.map(row => row.dataset.prompt)") == [sent.prompt_id for sent in calls]
    rows.nth(1).locator("a").click()
    page.wait_for_url(f"**/prompt?id={calls[1].prompt_id}")
    page.locator(".st-key-card-waterfall svg.marks").wait_for()
    settled(page)
    assert metric(page, "figures", "TTFT") == fmt.duration(calls[1].ttft_ns)


def test_a_prompt_that_did_not_stream_has_no_breakdown(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/prompt?id={run.one('unstreamed').prompt_id}")
    page.get_by_text("The answer did not stream").wait_for()
    settled(page)
    assert metric(page, "figures", "TTFT") == "—"
    assert page.get_by_role("table", name="TTFT by part").count() == 0
    page.locator(".st-key-card-waterfall svg.marks").wait_for()


def test_raw_spans_are_shown_as_they_came(run: Run, page: Any) -> None:
    sent = run.one("plain")
    page.goto(f"{run.url}/prompt?id={sent.prompt_id}")
    page.get_by_text(f"Raw spans ({sent.spans})").click()
    page.locator(".st-key-raw-spans [data-testid=stDataFrame]").wait_for()
    page.get_by_text(f"promptpath sql \"SELECT * FROM otel_traces WHERE TraceId IN ('{sent.trace_id}')").wait_for()


def test_an_unknown_id_says_what_to_do(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/prompt")
    for text in ("0123456789abcdef", "not an id", "'; DROP TABLE prompts; --", "<img src=x onerror=alert(1)>"):
        box = page.get_by_label("Prompt id or trace id")
        box.fill(text)
        box.press("Enter")
        page.locator(".st-key-state-unknown").get_by_text(f"No prompt or trace {text.lower()}.").wait_for()
        page.locator(".st-key-state-unknown").get_by_text("promptpath doctor").wait_for()


def test_times_are_those_of_the_viewers_zone(run: Run, page: Any) -> None:
    sent = run.one("plain")
    began = run.sql(
        "SELECT formatDateTime(start_time, '%H:%i:%S', 'Europe/Berlin') AS at FROM prompts"
        f" WHERE prompt_id = '{sent.prompt_id}'"
    )
    page.goto(f"{run.url}/prompt?id={sent.prompt_id}")
    page.locator(".st-key-facts").get_by_text(began[0]["at"]).wait_for()
    page.locator(".st-key-facts").get_by_text("Europe/Berlin").wait_for()


def test_a_filter_that_takes_nothing_offers_the_way_back(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/overview?model=no-such-model")
    page.locator(".st-key-state-nothing").get_by_text(f"The store holds {stored(run)} prompts").wait_for()
    page.get_by_role("button", name="Clear the filters").click()
    page.locator(".st-key-card-ttft svg.marks").wait_for()
    assert "model" not in query(page)


def test_a_range_before_the_prompts_offers_one_that_holds_them(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/overview?range=from+…+to+…&since=2024-01-01T00:00:00Z&until=2024-01-02T00:00:00Z")
    page.get_by_role("button", name=re.compile("Show the last")).click()
    page.locator(".st-key-card-ttft svg.marks").wait_for()
    assert metric(page, "headline", "Prompts") == str(stored(run))


def test_a_click_on_the_heat_map_leads_to_the_prompts_in_the_cell(run: Run, page: Any) -> None:
    page.goto(f"{run.url}/overview")
    cells = page.locator(f".st-key-card-heat svg.marks {BARS}")
    cells.first.wait_for(state="attached")
    settled(page)
    cells.first.click(force=True)
    page.wait_for_url("**/prompts?**")
    prompt_rows(page).first.wait_for()
    bounds = {name: float(query(page)[name][0]) for name in ("min_ttft", "max_ttft")}
    shown = listed(page)
    for prompt_id in shown:
        ttft_ns = run.sql(f"SELECT ttft_ns FROM prompts WHERE prompt_id = '{prompt_id}'")[0]["ttft_ns"]
        assert bounds["min_ttft"] * 1e6 <= ttft_ns < bounds["max_ttft"] * 1e6
    assert shown


def test_a_live_page_shows_what_comes_in_and_keeps_its_filters(
    run: Run, page: Any, send: Callable[[str], Sent]
) -> None:
    page.goto(f"{run.url}/prompts?live=true&status=client_abort")
    prompt_rows(page).first.wait_for()
    sent = send("aborted")
    page.locator(f"tr[data-prompt='{sent.prompt_id}']").wait_for()
    assert query(page)["status"] == ["client_abort"]


def test_a_dark_browser_gets_dark_pages(run: Run, browser: Any) -> None:
    page = browser.new_context(color_scheme="dark").new_page()
    page.goto(f"{run.url}/prompt?id={run.one('plain').prompt_id}")
    page.locator(".st-key-card-waterfall svg.marks").wait_for()
    background = page.locator("[data-testid=stApp]").evaluate("node => getComputedStyle(node).backgroundColor")
    channels = [int(value) for value in re.findall(r"\d+", background)[:3]]
    assert max(channels) < 60
    page.context.close()


def test_storage_that_is_not_there_says_how_to_start_it(serve: Callable[[str], str], page: Any) -> None:
    url = serve("clickhouse://127.0.0.1:9/promptpath")
    page.goto(f"{url}/overview")
    page.locator(".st-key-state-unreachable").get_by_text("Storage cannot be reached").wait_for()
    page.locator(".st-key-state-unreachable").get_by_text("promptpath up").wait_for()
    assert page.get_by_text("Traceback").count() == 0
