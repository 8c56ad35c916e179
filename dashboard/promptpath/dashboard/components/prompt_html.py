"""The parts of the Prompt page that are plain HTML: facts, hops, and the tables whose figures add up. Pure, all text
escaped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from html import escape

from promptpath.dashboard import format as fmt
from promptpath.dashboard import prompt_view
from promptpath.dashboard.prompt_view import BreakdownRow, Hop, Prompt, Response, Term
from promptpath.dashboard.theme import PART_COLOR, PART_HELP, status_color
from promptpath.semconv import Part

_WIDE = ' class="pp-wide"'
_OPTIONAL = (
    ("tenant", "Tenant"),
    ("agent_name", "Agent"),
    ("workflow_id", "Workflow"),
    ("conversation_id", "Conversation"),
)


def facts(prompt: Prompt, hops: Sequence[Hop], tz: tzinfo) -> str:
    """What the prompt is, as a list of terms, and the hops that it passed."""
    terms = _terms(prompt, tz)
    cells = "".join(
        f"<div{_WIDE if term == 'Trace id' else ''}><dt>{escape(term)}</dt><dd>{value}</dd></div>"
        for term, value in terms.items()
    )
    return f'<dl class="pp-facts">{cells}</dl>{_hops(hops)}'


def _terms(prompt: Prompt, tz: tzinfo) -> dict[str, str]:
    began = fmt.clock_time(datetime.fromtimestamp(prompt["start_ns"] / 1e9, UTC), tz)
    retries = f", {fmt.duration(prompt['retry_ns'])} lost in retries" if prompt["retry_ns"] else ""
    terms = {
        "Status": _status(prompt),
        "Model": escape(_model(prompt)),
        "Began": f"{escape(began)} <small>{escape(str(tz))}</small>",
        "Service": escape(prompt["service"] or fmt.MISSING),
        "Operation": escape(prompt["operation"] or fmt.MISSING),
        "Finish": escape(prompt["finish_reason"] or fmt.MISSING),
        "Attempts": f"{prompt['attempts']}{retries}",
        "Trace": escape(_trace_quality(prompt)),
    }
    terms |= {label: escape(prompt[name]) for name, label in _OPTIONAL if prompt[name]}
    terms["Prompt id"] = f"<code>{escape(prompt['prompt_id'])}</code>"
    terms["Trace id"] = f"<code>{escape(prompt['trace_id'])}</code>"
    return terms


def _status(prompt: Prompt) -> str:
    text = prompt["status"] + (f": {prompt['error_type']}" if prompt["error_type"] else "")
    return f'<i class="pp-dot" style="background:{status_color(prompt["status"])}"></i> {escape(text)}'


def _model(prompt: Prompt) -> str:
    asked_for = prompt["request_model"]
    model: str = prompt["model"] or fmt.MISSING
    return f"{model} (asked for {asked_for})" if asked_for and asked_for != prompt["model"] else model


def _trace_quality(prompt: Prompt) -> str:
    complete = prompt["completeness"]
    text = "no calls" if complete is None else f"{fmt.percent(complete, 0)} of calls seen from both ends"
    return text + (f", joined by {prompt['joined_by'].replace('_', ' ')}" if prompt["joined_by"] else "")


def _hops(hops: Sequence[Hop]) -> str:
    boxes = [
        f"<span>{escape(hop.name)}{f' <small>on {escape(hop.host[:24])}</small>' if hop.host else ''}</span>"
        for hop in hops
    ]
    return f'<div class="pp-hops" role="group" aria-label="Hops">{" → ".join(boxes)}</div>'


def breakdown(rows: Sequence[BreakdownRow], ttft_ns: int) -> str:
    """The nine parts in ms and percent. `data-ns` holds what is exact; what is shown adds up too."""
    body = "".join(
        f'<tr data-part="{row.part.value}" data-ns="{row.ns}">'
        f'<td><i style="background:{PART_COLOR[row.part]}"></i>{row.part.value}</td>'
        f'<td class="n">{row.shown_us / 1000:,.3f}</td><td class="n">{row.share * 100:.1f} %</td>'
        f'<td class="why">{escape(PART_HELP[row.part])}</td></tr>'
        for row in rows
    )
    total = f"{prompt_view.round_us(ttft_ns) / 1000:,.3f}"
    return (
        '<table class="pp-sum" aria-label="TTFT by part">'
        '<thead><tr><th scope="col">Part</th><th scope="col" class="n">ms</th><th scope="col" class="n">share</th>'
        f'<th scope="col">what it holds</th></tr></thead><tbody>{body}</tbody>'
        f'<tfoot><tr data-part="ttft" data-ns="{ttft_ns}"><td>TTFT</td><td class="n">{total}</td>'
        '<td class="n">100.0 %</td><td></td></tr></tfoot></table>'
    )


def terms(items: Sequence[Term], ttft_ns: int) -> str:
    """The TTFT as a sum of the latency model's terms."""
    body = "".join(
        f'<tr data-term="{term.symbol}" data-ns="{term.ns}"><td>{symbol(term.symbol)}</td>'
        f'<td class="n">{fmt.duration(term.ns)}</td>'
        f'<td class="n">{fmt.percent(term.ns / ttft_ns if ttft_ns else 0.0)}</td>'
        f'<td class="why">{escape(term.meaning)}</td></tr>'
        for term in items
    )
    names = " + ".join(symbol(term.symbol) for term in items)
    return (
        f'<div class="pp-formula"><b>TTFT</b> = {names}</div>'
        f'<table class="pp-sum" aria-label="Terms of the TTFT"><tbody>{body}</tbody>'
        f'<tfoot><tr><td>TTFT</td><td class="n">{fmt.duration(ttft_ns)}</td><td class="n">100.0 %</td><td></td></tr>'
        "</tfoot></table>"
    )


def response(answer: Response) -> str:
    """The time of the whole answer by the formula, beside what was measured."""
    return (
        f'<div class="pp-formula"><b>{symbol("T_response")}</b> = TTFT + (N − 1) · TPOT<br>'
        f"= {fmt.duration(answer.ttft_ns)} + ({answer.tokens:,} − 1) · {fmt.duration(answer.tpot_ns)}"
        f" = <b>{fmt.duration(answer.computed_ns)}</b> to the last token<br>"
        f"measured end to end: {fmt.duration(answer.e2e_ns)}, "
        f"of which {fmt.duration(answer.tail_ns)} after the last token</div>"
    )


def legend() -> str:
    """Which colour is which part, in one line."""
    items = "".join(f'<span><i style="background:{PART_COLOR[part]}"></i>{part.value}</span>' for part in Part)
    return f'<div class="pp-legend" role="group" aria-label="Colours of the parts">{items}</div>'


def symbol(name: str) -> str:
    """`T_queue` as T with an index."""
    letter, _, index = name.partition("_")
    return f"{letter}<sub>{index}</sub>"
