"""The SQL endpoint of a collector with tokens: basic and bearer, one tenant's rows each."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from promptpath import storage
from promptpath.collector.auth import Scope, entry, new_token, write

from .running import Answer, RunningCollector, fetch, make_spans, wait_for
from .test_sql_endpoint import url

COUNTS = {"acme": 3, "globex": 5}


@dataclass
class Served:
    collector: RunningCollector
    directory: Path
    ingest: dict[str, str]
    query: dict[str, str]

    def ask(self, query: str, headers: dict[str, str], **params: Any) -> Answer:
        return fetch(url(self.collector, **params), query.encode(), headers)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("store")
    file = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    ingest = {tenant: new_token() for tenant in COUNTS}
    query = {tenant: new_token() for tenant in COUNTS}
    entries = [entry(f"{tenant}-in", tenant, token) for tenant, token in ingest.items()]
    entries += [entry(f"{tenant}-out", tenant, token, [Scope.QUERY]) for tenant, token in query.items()]
    write(file, entries)
    with RunningCollector(directory, tokens=file, assemble=True, grace_s=0.1) as collector:
        for number, (tenant, count) in enumerate(COUNTS.items()):
            body = make_spans(count, first=1 + 100 * number).SerializeToString()
            assert collector.post(body, Authorization=f"Bearer {ingest[tenant]}").status == 200
        collector.wait_stored(sum(COUNTS.values()))
        yield Served(collector, directory, ingest, query)


def basic(token: str, user: str = "default") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()}


@pytest.mark.parametrize("tenant", list(COUNTS))
def test_every_way_to_give_a_token_shows_its_tenant_s_rows(served: Served, tenant: str) -> None:
    token, expected = served.query[tenant], f"{COUNTS[tenant]}\t['{tenant}']\n".encode()
    query = "SELECT count(), groupUniqArray(Tenant) FROM otel_traces"
    for answer in (
        served.ask(query, {"Authorization": f"Bearer {token}"}),
        served.ask(query, basic(token)),
        served.ask(query, basic(token, "somebody")),
        served.ask(query, {"X-ClickHouse-User": "default", "X-ClickHouse-Key": token}),
        served.ask(query, {}, user="default", password=token),
    ):
        assert (answer.status, answer.body) == (200, expected)
    client = clickhouse_connect.get_client(
        host="127.0.0.1", port=served.collector.ports.sql, username="default", password=token, database="promptpath"
    )
    assert client.query("SELECT count() FROM otel_traces").result_rows == [(COUNTS[tenant],)]
    with pytest.raises(DatabaseError, match="ACCESS_DENIED"):
        client.query("SELECT * FROM assembler_state")
    client.close()


def test_who_gives_none_or_a_wrong_one_is_told(served: Served) -> None:
    none = served.ask("SELECT 1", {})
    assert (none.status, none.headers["x-clickhouse-exception-code"]) == (401, "194")
    assert none.headers["www-authenticate"] == 'Basic realm="promptpath"'
    for headers in (
        {"Authorization": "Bearer nope"},
        {"Authorization": "Basic !"},
        {"Authorization": "Digest x"},
        {"X-ClickHouse-Key": "nope"},
        basic(""),
        basic(new_token()),
        basic("\udcff".encode("utf-8", "surrogateescape").decode("latin-1")),
    ):
        answer = served.ask("SELECT 1", headers)
        assert (answer.status, answer.headers["x-clickhouse-exception-code"]) == (403, "516"), headers
        assert answer.body.count(b"DB::Exception") == 1
    ingest = served.ask("SELECT 1", {"Authorization": f"Bearer {served.ingest['acme']}"})
    assert (ingest.status, ingest.headers["x-clickhouse-exception-code"]) == (403, "497")
    assert served.ingest["acme"].encode() not in ingest.body
    assert fetch(f"http://127.0.0.1:{served.collector.ports.sql}/ping").status == 200


def test_the_owner_s_own_commands_see_all_and_their_token_is_a_secret(served: Served) -> None:
    told = served.directory / "owner.json"
    assert stat.S_IMODE(told.stat().st_mode) == 0o600
    published = json.loads(told.read_text())["sql_url"]
    client = storage.connect(published, readonly=True)
    assert client.query("SELECT count() FROM otel_traces").result_rows == [(sum(COUNTS.values()),)]
    client.close()
    owner = storage.owner.find(served.directory)
    assert owner is not None
    assert owner.shown_url == served.collector.collector.sql_url
    assert "@" not in owner.shown_url


def make_prompts(count: int, tenant: str) -> bytes:
    request = make_spans(count, first=1_000 + 100 * list(COUNTS).index(tenant))
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.kind = span.SPAN_KIND_CLIENT
        span.attributes.add(key="promptpath.stage").value.string_value = "client"
    body: bytes = request.SerializeToString()
    return body


def test_a_tenant_reads_the_minutes_of_its_own_prompts(served: Served) -> None:
    """The other tenant's are as many, of the same service and model, in the same minute."""
    count = "SELECT sum(prompts) FROM prompt_minutes"
    for tenant in COUNTS:
        bearer = f"Bearer {served.ingest[tenant]}"
        assert served.collector.post(make_prompts(2, tenant), Authorization=bearer).status == 200
    everyone = storage.connect(json.loads((served.directory / "owner.json").read_text())["sql_url"], readonly=True)
    wait_for(lambda: everyone.query(count).result_rows == [(4,)], "the minutes of all prompts", 60)
    everyone.close()
    for tenant in COUNTS:
        headers = basic(served.query[tenant])
        query = "SELECT sum(prompts), groupUniqArray(tenant), groupUniqArray(token_tenant) FROM prompt_minutes"
        assert served.ask(query, headers).body.decode() == f"2\t['{tenant}']\t['{tenant}']\n"
        assert served.ask("SELECT count() FROM prompt_minutes_rows", headers).status == 403
