"""Rule files: what they may say, and that a mistake is named with file and key."""

from __future__ import annotations

import pytest

from promptpath.collector.assemble.rules import Condition, RuleError, load_rules, parse_rules
from promptpath.collector.assemble.rules_sql import compile_select

SPAN = '[[span]]\nname = "x"\nmatch.name = "y"\n'


def test_a_file_in_full() -> None:
    file = parse_rules(
        "x.toml",
        """
        system = "x"
        order = 7
        [[span]]
        name = "request"
        match = { kind = "SERVER", name = ["a", "b *"], attribute = { k = true }, inference_path = true }
        stage = "server"
        inference = true
        after_first_token = [{ stage = "decode", duration = { attribute = "d", unit = "s" } }]
        [span.fields]
        model = ["m"]
        [fields]
        abort = [{ attribute = "flags", values = { DC = "disconnect" } }]
        first_token_ns = [{ event = "first" }, { event = "e", attribute = "at", unit = "ms" }]
        """,
    )
    (rule,) = file.spans
    assert (file.system, file.order, rule.name, rule.stage, rule.inference) == ("x", 7, "request", "server", True)
    assert rule.match.conditions == (
        Condition("name", "", ("a", "b *")),
        Condition("kind", "", ("SERVER",)),
        Condition("attribute", "k", ()),
    )
    assert (rule.match.inference_path, rule.match.inference_operation) == (True, False)
    assert [(part.place, part.stage, part.duration.unit) for part in rule.parts] == [
        ("after_first_token", "decode", "s")
    ]
    assert rule.fields["model"][0].name == "m"
    assert file.fields["abort"][0].values == (("DC", "disconnect"),)
    assert [one.source for one in file.fields["first_token_ns"]] == ["event", "event"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system =", "mine.toml:1: is not TOML: "),
        ("order = 3", "mine.toml:1: system is missing"),
        ("system = 3", "mine.toml:1: system must be a text"),
        ('system = "x"\norder = "first"', "mine.toml:2: order must be an integer"),
        ('system = "x"\nspans = 1', "mine.toml:2: spans is not known here; known: system, order, "),
        ('system = "x"\nspan = 1', "mine.toml:2: span must be a list of tables"),
        ('system = "x"\n[[span]]\nname = "a"', "mine.toml:2: span[0].match says nothing: it would match every span"),
        ('system = "x"\n[[span]]\nmatch.name = "a"', "mine.toml:2: span[0].name is missing"),
        ('system = "x"\n' + SPAN + 'stage = "thinking"', "mine.toml:5: span[0].stage 'thinking' is no stage"),
        ('system = "x"\n' + SPAN + SPAN + "inference = 1", "mine.toml:8: span[1].inference must be true or false"),
        ('system = "x"\n' + SPAN + 'stage = "queue"\nstage_from = "a"', "mine.toml:6: span[0].stage_from and stage"),
        ('system = "x"\n' + SPAN + "match.scope = 3", "mine.toml:5: span[0].match.scope must be a text"),
        ('system = "x"\n' + SPAN + 'match.kind = "server"', "mine.toml:5: span[0].match.kind 'server' is none of"),
        ('system = "x"\n' + SPAN + "match.attribute.a = false", "mine.toml:5: span[0].match.attribute.a must be"),
        ('system = "x"\n' + SPAN + 'match.nam = "a"', "mine.toml:5: span[0].match.nam is not known here"),
        ('system = "x"\n' + SPAN + 'from_start = [{ stage = "queue", duration = { attribute = "a" } }]',
         "mine.toml:5: span[0].from_start[0].duration.unit must be one of s, ms, us, ns, time"),
        ('system = "x"\n' + SPAN + 'from_start = [{ stage = "q", duration = { attribute = "a", unit = "s" } }]',
         "mine.toml:5: span[0].from_start[0].stage 'q' is no stage"),
        ('system = "x"\n[fields]\nttft = ["a"]', "mine.toml:3: fields.ttft is not known here; known: first_token_ns"),
        ('system = "x"\n[fields]\nmodel = "a"', "mine.toml:3: fields.model must be a list of spellings"),
        ('system = "x"\n[fields]\nmodel = [{ attribute = "a", unit = "s" }]',
         "mine.toml:3: fields.model[0].unit says nothing here"),
        ('system = "x"\n[fields]\nmodel = [3]', "mine.toml:3: fields.model[0] must be a table"),
        ('system = "x"\n[fields]\nmodel = [{ event = "a" }]',
         "mine.toml:3: fields.model[0].attribute is missing: only times can be an event's own"),
        ('system = "x"\n[fields]\nabort = [{ attribute = "a", values = { b = 1 } }]',
         "mine.toml:3: fields.abort[0].values must map texts to texts"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules("mine.toml", text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_files_are_tried_in_their_order() -> None:
    order = [file.order for file in load_rules()]
    assert order == sorted(order)
    assert {file.system for file in load_rules()} >= {"promptpath", "generic", "vllm", "litellm", "envoy"}


def test_texts_of_rules_cannot_leave_their_quotes() -> None:
    text = r"""' OR 1=1 -- \' {x:String} {{stage}}"""
    toml = 'system = "x"\n[[span]]\nname = "n"\nmatch.name = ' + f"'''{text}'''" + '\nstage = "queue"'
    select = compile_select([parse_rules("x.toml", toml)])
    assert r"'\' OR 1=1 -- \\\' \x7Bx:String\x7D \x7B\x7Bstage\x7D\x7D'" in select


def test_no_rules_at_all_still_make_a_select() -> None:
    select = compile_select([])
    assert "0 AS rule" in select
    assert "'' AS stage" in select
