"""How many spans a second one core makes into prompts, beside plain Python that follows the same rules."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from promptpath.cli.benches import Figures
from promptpath.cli.benches.machine import machine
from promptpath.cli.benches.spans import as_selected, demo_batch
from promptpath.cli.benches.stored import selected
from promptpath.collector.assemble import AssembleConfig, assemble

_REFERENCE: Final = Path(__file__).parents[4] / "tests" / "reference" / "assemble_reference.py"
_ROUNDS: Final = 5
_REFERENCE_PROMPTS: Final = 500
#: As many as the service assembles at once, a little under 100,000 spans.
_STORED_PROMPTS: Final = 5_000

Rows = list[dict[str, Any]]


def measure(prompts: int) -> Figures:
    """Assembles a batch of `prompts` prompts of about 20 spans, in any order, with one thread.

    spans_per_s_core: by processor time, the best of some rounds: what else a machine does slows a round, never speeds
    it. The spans have dictionaries where the collector's SELECT gives them; `_text`: texts instead; `_in_order`: traces
    together and by time. `_selected`: a batch of simulated prompts of all topologies, stored, as the SELECT gives it;
    what that costs itself, all threads of the embedded engine together, is `select_us_per_span`. python: the same by
    the reference on a smaller batch, where the tests are there; both must give the same rows.
    """
    pa.set_cpu_count(1)
    config = AssembleConfig(assembled_at_ns=1)
    text = demo_batch(prompts)
    table = as_selected(text)
    in_order = as_selected(demo_batch(prompts, in_order=True))
    assemble(table.slice(0, min(table.num_rows, 50_000)), config)
    spans_per_s = _best(lambda: assemble(table, config), table.num_rows)
    with tempfile.TemporaryDirectory() as folder:
        stored, select_s = selected(_STORED_PROMPTS, Path(folder))
    figures = {
        "spans_per_s_core": round(spans_per_s),
        "spans_per_s_core_selected": round(_best(lambda: assemble(stored, config), stored.num_rows)),
        "spans_per_s_core_text": round(_best(lambda: assemble(text, config), table.num_rows)),
        "spans_per_s_core_in_order": round(_best(lambda: assemble(in_order, config), in_order.num_rows)),
        "us_per_span": round(1e6 / spans_per_s, 3),
        "select_us_per_span": round(1e6 * select_s / stored.num_rows, 2),
        "spans": table.num_rows,
        "prompts": prompts,
    }
    ratios: dict[str, float | None] = {"python": None}
    reference = load_reference()
    if reference is not None:
        small = demo_batch(_REFERENCE_PROMPTS)
        rows = small.to_pylist()
        figures["python_spans_per_s_core"] = round(_best(lambda: reference(rows), len(rows), rounds=1))
        if agreed(rows_of(assemble(small, config))) != reference(rows):
            raise RuntimeError("the assembler and its reference give different rows")
        ratios["python"] = round(figures["spans_per_s_core"] / figures["python_spans_per_s_core"], 1)
    return Figures("assemble", machine(), figures, ratios)


def load_reference() -> Callable[[Rows], Rows] | None:
    """`assemble_reference` of the tests; None where they did not come along."""
    if not _REFERENCE.is_file():
        return None
    name = "promptpath_assemble_reference"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _REFERENCE)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    found: Callable[[Rows], Rows] = sys.modules[name].assemble_reference
    return found


def rows_of(prompts: pa.Table) -> Rows:
    """Prompts as dicts, instants as ns since the epoch: what the reference gives."""
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in prompts.columns]
    rows: Rows = pa.table(columns, names=prompts.column_names).to_pylist()
    return rows


def agreed(rows: Rows) -> Rows:
    """Rows without what the reference does not tell: what stalls came from."""
    return [{name: value for name, value in row.items() if not name.startswith("stall_causes.")} for row in rows]


def _best(work: Callable[[], object], spans: int, rounds: int = _ROUNDS) -> float:
    """Spans a second of processor time in the best round."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return spans / min(times)
