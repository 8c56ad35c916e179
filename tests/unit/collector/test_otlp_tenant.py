"""A tenant in the envelope of each resource: ours, and ours alone, whatever the sender wrote there."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from promptpath.collector.otlp import PROTOBUF, Reader, Signal, tenant


def spans_request(count: int) -> Any:
    request = Signal.TRACES.request()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="promptpath.tenant").value.string_value = "anyone"
    scope = resource.scope_spans.add()
    for number in range(1, count + 1):
        scope.spans.add(trace_id=bytes(15) + b"\1", span_id=number.to_bytes(8, "big"), name="chat")
    return request


def _stamped_class() -> Any:
    """A request whose resources have only the tenant as a field of their own; everything else is unknown to it."""
    file = descriptor_pb2.FileDescriptorProto(name="stamped.proto", syntax="proto3")
    resource = file.message_type.add(name="Resource")
    resource.field.add(name="tenant", number=2046, type=9, label=3)
    request = file.message_type.add(name="Request")
    request.field.add(name="resources", number=1, type=11, label=3, type_name=".Resource")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Request"))


STAMPED = _stamped_class()


def tenants(body: bytes) -> list[list[str]]:
    return [list(resource.tenant) for resource in STAMPED.FromString(body).resources]


def test_every_resource_is_stamped_and_nothing_else_changes() -> None:
    request = spans_request(3)
    request.resource_spans.add(schema_url="u")
    request.resource_spans.add()
    body = request.SerializeToString()
    stamped = tenant.stamp(body, "acme")
    assert tenants(stamped) == [["acme"]] * 3
    plain = Signal.TRACES.request.FromString(stamped)
    for resource in plain.resource_spans:
        resource.DiscardUnknownFields()
    assert plain == request
    assert tenant.stamp(stamped, "") == body


@pytest.mark.parametrize("spelled", [b"\xf2\x7f", b"\xf2\xff\x00", b"\xf2\xff\x80\x80\x00"])
@pytest.mark.parametrize("owner", ["", "acme"])
def test_a_sender_cannot_write_it(spelled: bytes, owner: str) -> None:
    forged = spelled + b"\x06victim"
    group = b"\xfb\x7d" + forged + b"\xfc\x7d"  # field 2015 as a group that holds it
    inside = forged + spans_request(1).resource_spans[0].SerializeToString() + group + forged
    body = b"\x0a" + bytes((len(inside) & 0x7F | 0x80, len(inside) >> 7)) + inside
    assert Signal.TRACES.request.FromString(body)
    read = Reader().read(Signal.TRACES, body, content_type=PROTOBUF, max_bytes=1 << 20, owner=owner)
    assert tenants(read.body) == [[owner] if owner else []]
    assert b"victim" not in read.body
    assert read.items == 1


@given(st.binary(max_size=200))
def test_whatever_a_parser_reads_is_stamped(data: bytes) -> None:
    try:
        request = Signal.TRACES.request.FromString(data)
    except Exception:
        return
    stamped = tenant.stamp(data, "acme")
    assert tenants(stamped) == [["acme"]] * len(request.resource_spans)
    again = Signal.TRACES.request.FromString(stamped)
    for one in (request, again):
        one.DiscardUnknownFields()
    assert again == request


@given(
    st.lists(
        st.sampled_from([b"\xf2", b"\x7f", b"\xff", b"\xf2\x7f", b"\xf2\xff", b"a" * 40, b"\xf2" * 90]), max_size=40
    )
)
def test_a_tag_is_found_wherever_it_stands(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    assert tenant.may_be_stamped(body) == (b"\xf2\x7f" in body or b"\xf2\xff" in body)
