"""`promptpath bench query` at a small size: every query answers both ways."""

from __future__ import annotations

import json

from click.testing import CliRunner

from promptpath.cli.bench import bench


def test_every_query_is_timed_both_ways() -> None:
    ran = CliRunner().invoke(bench, ["query", "--prompts", "20", "--format", "json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert (found["name"], found["figures"]["prompts"]) == ("query", 20)
    times = {name for name in found["figures"] if name.endswith("_ms")}
    direct = {name.removesuffix("_direct_ms") for name in times if name.endswith("_direct_ms")}
    assert direct == {name.removesuffix("_http_ms") for name in times if name.endswith("_http_ms")}
    assert len(direct) == 6
    assert all(found["figures"][name] > 0 for name in times)
