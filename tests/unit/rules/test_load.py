"""Which rule files there are, and whose count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from promptpath.collector.assemble.rules import RuleError, load_rules
from promptpath.collector.assemble.rules_sql import compile_select, select_of

MINE = 'system = "mine"\norder = 5\n[[span]]\nname = "all"\nmatch.name = "x"\nstage = "queue"\n'
SYSTEMS = {
    "azure", "bedrock", "caddy", "databricks", "deepspeed", "dynamo", "envoy", "generic", "kong", "langdb", "langfuse",
    "litellm", "llama-cpp", "llm-d", "lmdeploy", "nemo-guardrails", "nginx", "openinference", "openlit", "openllmetry",
    "openrouter", "otel-genai", "portkey", "promptpath", "ray-serve", "sglang", "sglang-router", "tensorrt-llm", "tgi",
    "traefik", "transformers", "triton", "vllm",
}  # fmt: skip


def test_every_system_has_a_file_that_says_where_it_comes_from() -> None:
    files = load_rules()
    assert {file.system for file in files} == SYSTEMS
    assert len(files) == len(SYSTEMS)
    for file in files:
        assert file.own
        assert file.file == f"{'ours' if file.system == 'promptpath' else file.system}.toml"
        assert re.search(r"\. Written from [^.]", file.about), file.file
        assert re.search(r"Tested on (recorded|source-derived|spans derived)", file.about), file.file
        assert file.spans or file.inference_paths, file.file


def test_rules_have_lines_and_names_that_tell_them_apart() -> None:
    for file in load_rules():
        assert len({rule.name for rule in file.spans}) == len(file.spans)
        assert [rule.line for rule in file.spans] == sorted(rule.line for rule in file.spans)
        assert all(rule.line > 1 for rule in file.spans)


def test_a_directory_of_ones_own(tmp_path: Path) -> None:
    """A file of the user's comes beside ours, one of the same name in the place of ours; the rest stays."""
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "vllm.toml").write_text(MINE.replace('"mine"', '"their vllm"').replace("order = 5", "order = 10"))
    (tmp_path / "notes.txt").write_text("no rules")
    files = load_rules([tmp_path])
    systems = [file.system for file in files]
    assert set(systems) == (SYSTEMS - {"vllm"}) | {"mine", "their vllm"}
    assert systems[:2] == ["promptpath", "mine"]
    assert [(file.system, file.file) for file in files if not file.own] == [
        ("mine", str(tmp_path / "mine.toml")),
        ("their vllm", str(tmp_path / "vllm.toml")),
    ]
    assert select_of(tmp_path) == compile_select(files)
    assert select_of(tmp_path) != select_of()


def test_a_file_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    assert [one.system for one in load_rules([file])][1] == "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MINE.replace("queue", "quue"), "mine.toml:6: span[0].stage 'quue' is no stage"),
        (MINE + "[span.fields]\nmodel = 3\n", "mine.toml:8: span[0].fields.model must be a list of spellings"),
        (MINE + 'from_start = [{ stage = "queue", duration = "rest" }, { stage = "prefill", duration = "rest" }]\n',
         "mine.toml:7: span[0].from_start[0].duration can be the rest only in the last part of from_start"),
        (MINE + 'before_first_token = [{ stage = "queue", duration = "rest" }]\n',
         "mine.toml:7: span[0].before_first_token[0].duration can be the rest only"),
        (MINE + '[span.fields]\npath = ["a"]\n', "mine.toml:8: span[0].fields.path is not known here"),
        (MINE + '[fields]\nmodel = [\n  "a",\n  { span = "duration" },\n]\n',
         'mine.toml:10: fields.model[1].span can only be "duration", of a time'),
        (MINE.replace("order = 5", 'inference_paths = ["v1/x"]'), "mine.toml:2: inference_paths 'v1/x' must begin"),
        ("system = \n", "mine.toml:1: is not TOML: Invalid value"),
        ('system = "a"\n\n[[span]\n', "mine.toml:3: is not TOML: "),
        ('system = "never ends\n', "mine.toml:1: is not TOML: "),
        (b"\xff", "mine.toml: cannot be read: "),
    ],
)  # fmt: skip
def test_mistakes_have_file_and_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RuleError) as caught:
        load_rules([tmp_path])
    assert str(caught.value).startswith(str(tmp_path / message))
    assert "\n" not in str(caught.value)


def test_what_rules_share_is_written_once() -> None:
    """The SELECT is analysed for every batch: another file with the same spellings must not make it longer."""
    files = load_rules()
    again = [*files, *(file for file in files if not file.spans)]
    assert len(compile_select(again)) == len(compile_select(files))
    spelled = compile_select(files).count("SpanAttributes['gen_ai.response.model']")
    assert spelled == 1
