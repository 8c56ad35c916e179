"""The dashboard's entry: `streamlit run app.py`, with `PROMPTPATH_STORAGE` saying where the prompts are.

Pages lie below /overview, /prompts and /prompt; the root leads to the overview. Settings and colours stand in
`.streamlit/config.toml` beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from promptpath.dashboard import data, messages, state
from promptpath.dashboard.views import overview, prompt, prompts
from promptpath.storage import StorageError

_ASSETS = Path(__file__).parent / "assets"

_STYLE = """
<style>
  .stMainBlockContainer { max-width: 1760px; padding: 4.2rem 2rem 3rem; }
  .stMainBlockContainer h1 { padding: 0; }
  .st-key-filters { margin-bottom: 0.25rem; }
  [data-testid="stMetricLabel"] p { font-size: 0.82rem; }
  .pp-facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 0.15rem 1.5rem;
    margin: 0 0 0.6rem !important; padding: 0 !important; }
  .pp-facts div { display: flex; gap: 0.5rem; font-size: 0.85rem; min-width: 0; }
  .pp-facts dt { opacity: 0.65; flex: none; font-weight: 400; }
  .pp-facts dd { margin: 0 !important; overflow-wrap: anywhere; }
  .pp-facts dd code { font-size: 0.8rem; padding: 0; background: none; }
  .pp-facts .pp-wide { grid-column: span 2; }
  .pp-dot { margin-right: 0.2rem; display: inline-block; width: 0.65rem; height: 0.65rem; border-radius: 50%; }
  [data-testid="stMetricLabel"] [data-testid="stTooltipIcon"] { opacity: 0.45; }
  .pp-sum { border-collapse: collapse; font-size: 0.86rem; font-variant-numeric: tabular-nums; width: 100%; }
  .pp-sum th, .pp-sum td { padding: 0.22rem 0.6rem; border: 0; text-align: left; }
  .pp-sum th { font-weight: 600; opacity: 0.75; border-bottom: 1px solid rgba(128, 128, 128, 0.35); }
  .pp-sum td.n, .pp-sum th.n { text-align: right; }
  .pp-sum tfoot td { border-top: 1px solid rgba(128, 128, 128, 0.35); font-weight: 600; }
  .pp-sum i { display: inline-block; width: 0.7rem; height: 0.7rem; border-radius: 2px; margin-right: 0.5rem; }
  .pp-sum .why { opacity: 0.7; }
  .pp-formula { font-size: 0.95rem; line-height: 2; font-variant-numeric: tabular-nums; }
  .pp-formula sub { font-size: 0.75em; }
  .pp-formula b { font-weight: 600; }
  .pp-legend { display: flex; flex-wrap: wrap; gap: 0.2rem 0.9rem; font-size: 0.8rem; opacity: 0.9; }
  .pp-legend i { display: inline-block; width: 0.7rem; height: 0.7rem; border-radius: 2px; margin-right: 0.35rem; }
  .pp-hops { display: flex; flex-wrap: wrap; gap: 0.4rem; align-items: center; font-size: 0.85rem; }
  .pp-hops span { border: 1px solid rgba(128, 128, 128, 0.4); border-radius: 0.35rem; padding: 0.1rem 0.5rem; }
  .pp-hops small { opacity: 0.65; }
</style>
"""


def _page(body: Callable[[], None]) -> Callable[[], None]:
    """A page that says what to do when storage is not there, instead of showing a traceback."""

    def show() -> None:
        try:
            body()
        except StorageError as error:
            messages.unreachable(error)
        except data.QueryFailed as error:
            messages.query_failed(error)

    return show


def _home() -> None:
    st.switch_page(_OVERVIEW, query_params=st.query_params.to_dict())


st.set_page_config(page_title="Promptpath", page_icon=str(_ASSETS / "icon.svg"), layout="wide")
st.logo(str(_ASSETS / "logo.svg"), size="large")
st.html(_STYLE)

_OVERVIEW = st.Page(_page(overview.page), title="Overview", icon=":material/monitoring:", url_path="overview")
_PROMPTS = st.Page(_page(prompts.page), title="Prompts", icon=":material/list:", url_path="prompts")
_PROMPT = st.Page(_page(prompt.page), title="Prompt", icon=":material/waterfall_chart:", url_path="prompt")
_HOME = st.Page(_home, title="Promptpath", url_path="home", default=True, visibility="hidden")
state.register({"overview": _OVERVIEW, "prompts": _PROMPTS, "prompt": _PROMPT})

st.navigation([_HOME, _OVERVIEW, _PROMPTS, _PROMPT], position="top").run()
