"""Makes the span samples beside it: what systems that could not be recorded send, as their released source says.

Run it to write them anew: python tests/data/derived/make.py. Each sample is one trace of made-up, round times; names,
kinds, attributes and units are those of the source named above it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

T0_NS = 1_767_225_600_000_000_000
MS = 1_000_000
INTERNAL, SERVER, CLIENT = 1, 2, 3
Attributes = dict[str, Any]
LMDEPLOY_CHAT = "lmdeploy.serve.openai.chat_completions.serving.register.<locals>.chat_completions_v1"


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def span(
    number: int,
    parent: int,
    name: str,
    start_ms: float,
    end_ms: float,
    attributes: Attributes | None = None,
    kind: int = INTERNAL,
    events: tuple[tuple[str, float, Attributes], ...] = (),
    link: int = 0,
    error: bool = False,
) -> dict[str, Any]:
    """One span; number is its id, parent 0 is none, times count from the sample's start."""

    def at(ms: float) -> str:
        return str(T0_NS + round(ms * MS))

    made: dict[str, Any] = {"spanId": f"{number:016x}", "name": name, "kind": kind}
    made |= {"startTimeUnixNano": at(start_ms), "endTimeUnixNano": at(end_ms)}
    made |= {"parentSpanId": f"{parent:016x}"} if parent else {}
    made |= {"attributes": _attributes(attributes or {}), "status": {"code": 2} if error else {}}
    made["events"] = [
        {"name": event, "timeUnixNano": at(ms), "attributes": _attributes(values)} for event, ms, values in events
    ]
    made["links"] = [{"traceId": "", "spanId": f"{link:016x}"}] if link else []
    return made


def process(service: str, scope: str, *spans: dict[str, Any], **resource: Any) -> dict[str, Any]:
    """What one process sends."""
    named = {"service.name": service} | {key.replace("_", "."): value for key, value in resource.items()}
    said = {"attributes": _attributes(named)}
    return {"resource": said, "scopeSpans": [{"scope": {"name": scope}, "spans": spans}]}


SAMPLES: dict[str, list[dict[str, Any]]] = {
    # vllm/v1/engine/output_processor.py, do_tracing: with n = 2 each choice has a span, with one id, and says n = 1.
    "vllm-n2": [
        process(
            "vllm",
            "vllm.tracing.otel",
            *(
                span(
                    number,
                    9,
                    "llm_request",
                    0,
                    end,
                    {
                        "gen_ai.latency.time_to_first_token": 0.05,
                        "gen_ai.latency.e2e": end / 1000,
                        "gen_ai.latency.time_in_queue": 0.01,
                        "gen_ai.latency.time_in_model_prefill": 0.03,
                        "gen_ai.latency.time_in_model_decode": (end - 50) / 1000,
                        "gen_ai.usage.prompt_tokens": 20,
                        "gen_ai.usage.completion_tokens": tokens,
                        "gen_ai.request.id": "chatcmpl-1",
                        "gen_ai.request.n": 1,
                    },
                    SERVER,
                )
                for number, end, tokens in ((1, 150, 11), (2, 130, 9))
            ),
        )
    ],
    # python/sglang/srt/observability/{trace,req_time_stats}.py: request, threads, slices; links tie slices in order.
    # The name of a request's span begins with its role, which is empty where one engine does everything.
    "sglang": [
        process(
            "sglang",
            "sglang server",
            span(
                1,
                0,
                " Req 0123abcd",
                0,
                200,
                {
                    "rid": "0123abcdef",
                    "module": "sglang::request",
                    "gen_ai.usage.prompt_tokens": 100,
                    "gen_ai.usage.completion_tokens": 16,
                    "gen_ai.usage.cached_tokens": 64,
                    "gen_ai.response.model": "m",
                    "gen_ai.response.finish_reasons": ["stop"],
                    "gen_ai.latency.time_to_first_token": 0.061,
                    "gen_ai.latency.e2e": 0.2,
                    "gen_ai.latency.time_in_model_prefill": 0.055,
                    "gen_ai.latency.time_in_model_decode": 0.139,
                },
            ),
            span(
                2,
                1,
                "tokenizer(host:0f0f0f0f | pid:11)",
                0,
                6,
                {"host_id": "0f0f0f0f", "pid": 11, "thread_label": "tokenizer"},
            ),
            span(3, 2, "tokenize", 0, 5),
            span(4, 2, "dispatch", 5, 6, link=3),
            span(
                5,
                1,
                "scheduler [TP 0] (host:0f0f0f0f | pid:12)",
                6,
                198,
                {"host_id": "0f0f0f0f", "pid": 12, "thread_label": "scheduler", "tp_rank": 0},
            ),
            span(6, 5, "request_process", 7, 8, link=4),
            span(7, 5, "prefill_waiting", 8, 28, link=6),
            span(8, 5, "prefill_forward", 28, 60, link=7),
            span(9, 8, "chunked_prefill", 28, 44),
            span(10, 8, "chunked_prefill", 44, 60),
            span(11, 5, "decode_forward", 60, 198, link=8),
        )
    ],
    # The same files with prefill and decode apart, as a router's trace header puts them under one span.
    "sglang-disaggregated": [
        process(
            "router",
            "smg",
            span(
                1,
                0,
                "http_request",
                0,
                300,
                {
                    "method": "POST",
                    "uri": "/v1/chat/completions",
                    "status_code": 200,
                    "latency": 2000,
                    "request_id": "req-1",
                    "module": "smg",
                },
            ),
            host_id="a",
        ),
        process(
            "prefill",
            "sglang server",
            span(
                2,
                1,
                "prefill Req 0123abcd",
                10,
                100,
                {"rid": "0123abcdef", "bootstrap_room": "0x2a", "module": "sglang::request"},
            ),
            span(3, 2, "tokenizer", 10, 15),
            span(4, 3, "tokenize", 10, 14),
            span(5, 2, "scheduler", 15, 100),
            span(6, 5, "prefill_bootstrap", 16, 20),
            span(7, 5, "prefill_waiting", 20, 30),
            span(8, 5, "prefill_forward", 30, 80),
            span(9, 5, "prefill_transfer_kv_cache", 80, 98),
            host_id="a",
        ),
        process(
            "decode",
            "sglang server",
            span(
                10,
                1,
                "decode Req 0123abcd",
                10,
                290,
                {
                    "rid": "0123abcdef",
                    "bootstrap_room": "0x2a",
                    "module": "sglang::request",
                    "gen_ai.latency.time_to_first_token": 0.095,
                    "gen_ai.usage.prompt_tokens": 100,
                    "gen_ai.usage.completion_tokens": 20,
                },
            ),
            span(11, 10, "scheduler", 12, 288),
            span(12, 11, "decode_prepare", 12, 13),
            span(13, 11, "decode_bootstrap", 13, 17),
            span(14, 11, "decode_transferred", 17, 98),
            span(15, 11, "decode_waiting", 98, 100),
            span(16, 11, "decode_forward", 100, 288),
            host_id="a",
        ),
    ],
    # smg: src/middleware.rs; `latency` in microseconds to the headers of the answer.
    "sglang-router": [
        process(
            "smg",
            "smg",
            span(
                1,
                0,
                "http_request",
                0,
                250,
                {
                    "method": "POST",
                    "uri": "/v1/chat/completions?x=1",
                    "version": "HTTP/1.1",
                    "module": "smg",
                    "request_id": "req-5d1",
                    "status_code": 200,
                    "latency": 1500,
                },
            ),
        )
    ],
    # text-generation-inference 3.3.7: router/src/server.rs (handlers), validation.rs, infer/mod.rs, backends/v3.
    "tgi": [
        process(
            "text-generation-inference.router",
            "opentelemetry-otlp",
            span(
                1,
                0,
                "chat_completions",
                0,
                150,
                {"code.namespace": "text_generation_router::server", "parameters": "GenerateParameters { .. }"},
            ),
            span(2, 1, "apply_chat_template", 1, 2, {"code.namespace": "text_generation_router::infer"}),
            span(3, 1, "async_stream", 2, 12, {"code.namespace": "text_generation_router::server"}),
            span(4, 3, "generate_stream", 2, 12, {"code.namespace": "text_generation_router::infer"}),
            span(5, 4, "validate", 2, 11, {"code.namespace": "text_generation_router::validation"}),
            span(6, 5, "tokenize", 3, 10, {"code.namespace": "text_generation_router::validation"}),
            span(7, 4, "schedule", 11, 12, {"code.namespace": "text_generation_router_v3::backend"}),
            span(8, 7, "queued", 12, 32, {"code.namespace": "text_generation_router_v3::queue"}),
            span(9, 7, "infer", 32, 148, {"code.namespace": "text_generation_router_v3::queue"}),
            *(
                span(
                    number, 9, "send_generation", at, at + 0.5, {"code.namespace": "text_generation_router_v3::backend"}
                )
                for number, at in ((10, 72), (11, 92), (12, 112), (13, 132))
            ),
        )
    ],
    # TensorRT-LLM: llmapi/tracing.py (names), executor/result.py (times count from the arrival); the span's kind as
    # vLLM's.
    "tensorrt-llm": [
        process(
            "trtllm",
            "trt.llm",
            span(
                1,
                0,
                "llm_request",
                0,
                400,
                {
                    "gen_ai.request.id": "42",
                    "gen_ai.request.n": 1,
                    "gen_ai.request.max_tokens": 32,
                    "gen_ai.usage.prompt_tokens": 64,
                    "gen_ai.usage.completion_tokens": 32,
                    "gen_ai.latency.time_to_first_token": 0.09,
                    "gen_ai.latency.e2e": 0.4,
                    "gen_ai.latency.time_in_queue": 0.02,
                    "gen_ai.response.finish_reasons": ["length"],
                },
                SERVER,
            ),
        )
    ],
    # triton-inference-server/server, src/tracer.cc: all spans SERVER, events with their activity's name.
    "triton": [
        process(
            "triton",
            "triton-server",
            span(
                1,
                0,
                "InferRequest",
                0,
                100,
                kind=SERVER,
                events=(
                    ("HTTP_RECV_START", 0, {}),
                    ("HTTP_RECV_END", 1, {}),
                    ("INFER_RESPONSE_COMPLETE", 98, {}),
                    ("HTTP_SEND_START", 98, {}),
                    ("HTTP_SEND_END", 99, {}),
                ),
            ),
            *(
                one
                for number, parent, model, start, end in (
                    (2, 1, "ensemble", 1, 98),
                    (3, 2, "preprocessing", 2, 10),
                    (5, 2, "tensorrt_llm", 11, 90),
                    (7, 2, "postprocessing", 91, 97),
                )
                for one in (
                    span(
                        number,
                        parent,
                        model,
                        start,
                        end,
                        {
                            "triton.model_name": model,
                            "triton.model_version": 1,
                            "triton.trace_id": number,
                            "triton.trace_parent_id": parent - 1,
                            "triton.request_id": "r-1",
                        },
                        SERVER,
                        events=(
                            ("REQUEST_START", start, {}),
                            ("QUEUE_START", start + 0.5, {}),
                            ("REQUEST_END", end, {}),
                        ),
                    ),
                    *(
                        []
                        if model == "ensemble"
                        else [span(number + 1, number, "compute", start + 1, end, kind=SERVER)]
                    ),
                )
            ),
        )
    ],
    # FastAPI's own spans over LMDeploy 0.18.0 (which sends none itself),
    # lmdeploy/serve/openai/chat_completions/serving.py.
    "lmdeploy": [
        process(
            "lmdeploy",
            "fastapi",
            span(
                1,
                0,
                "POST /v1/chat/completions",
                0,
                120,
                {
                    "url.path": "/v1/chat/completions",
                    "http.request.method": "POST",
                    "http.response.status_code": 200,
                    "http.route": "/v1/chat/completions",
                },
                SERVER,
            ),
            span(
                2,
                1,
                "fastapi.dependencies",
                1,
                3,
                {"code.function.name": LMDEPLOY_CHAT},
            ),
            span(
                3,
                1,
                "fastapi.endpoint",
                3,
                20,
                {"code.function.name": LMDEPLOY_CHAT},
            ),
        )
    ],
    # FastAPI's own spans over DeepSpeed-MII 0.3.3 (which sends none itself), mii/entrypoints/api_server.py, run as
    # a module.
    "deepspeed": [
        process(
            "mii",
            "fastapi",
            span(
                1,
                0,
                "POST /generate",
                0,
                80,
                {
                    "url.path": "/generate",
                    "http.request.method": "POST",
                    "http.response.status_code": 503,
                    "http.route": "/generate",
                },
                SERVER,
                error=True,
            ),
            span(2, 1, "fastapi.dependencies", 2, 4, {"code.function.name": "__main__.generate"}),
        )
    ],
    # Kong 3.9: kong/observability/tracing/instrumentation.lua; two tries of an upstream, the first refused.
    "kong": [
        process(
            "kong",
            "kong-internal",
            span(
                1,
                0,
                "kong",
                0,
                500,
                {
                    "http.method": "POST",
                    "http.url": "http://api.example.com/v1/chat/completions",
                    "http.status_code": 200,
                    "http.flavor": "1.1",
                    "net.peer.ip": "10.0.0.9",
                    "http.route": "/v1",
                    "kong.request.id": "k-1",
                },
                SERVER,
            ),
            span(2, 1, "kong.router", 1, 2),
            span(3, 1, "kong.access.plugin.key-auth", 2, 6),
            span(4, 1, "kong.access.plugin.ai-prompt-guard", 6, 10),
            span(5, 1, "kong.dns", 10, 12, {"dns.record.domain": "llm"}, CLIENT),
            span(
                6,
                1,
                "kong.balancer",
                12,
                15,
                {"try_count": 1, "net.peer.ip": "10.0.0.1", "http.status_code": 502},
                CLIENT,
                error=True,
            ),
            span(7, 1, "kong.balancer", 15, 495, {"try_count": 2, "net.peer.ip": "10.0.0.2"}, CLIENT),
            span(8, 1, "kong.header_filter.plugin.cors", 60, 61),
        )
    ],
    # nginx-otel: src/http_module.cpp (attributes), src/batch_exporter.hpp (scope, kind).
    "nginx": [
        process(
            "nginx",
            "nginx",
            span(
                1,
                0,
                "/v1/chat/completions",
                0,
                300,
                {
                    "http.method": "POST",
                    "http.target": "/v1/chat/completions?a=b",
                    "http.route": "/v1/",
                    "http.scheme": "http",
                    "http.flavor": "1.1",
                    "http.status_code": 429,
                    "http.request_content_length": 200,
                    "net.host.name": "gw",
                    "net.sock.peer.addr": "10.0.0.9",
                    "net.sock.peer.port": 4242,
                    "nginx.upstream_header_time": "0.120",
                },
                SERVER,
            ),
        )
    ],
    # Dynamo 1.5: docs/observability/logging.md (spans in disaggregated mode), lib/runtime/src (attributes).
    "dynamo": [
        process(
            "dynamo-frontend",
            "dynamo",
            span(
                1,
                0,
                "http-request",
                0,
                400,
                {
                    "method": "POST",
                    "uri": "/v1/chat/completions",
                    "version": "HTTP/1.1",
                    "x_request_id": "x-1",
                },
            ),
            span(2, 1, "prefill_routing", 5, 60),
            host_id="a",
        ),
        process(
            "dynamo-worker-vllm-prefill",
            "dynamo",
            span(
                3,
                1,
                "handle_payload",
                10,
                58,
                {
                    "component": "prefill",
                    "endpoint": "generate",
                    "namespace": "dynamo",
                    "instance_id": 1,
                    "x_request_id": "x-1",
                },
            ),
            host_id="a",
        ),
        process(
            "dynamo-worker-vllm-decode",
            "dynamo",
            span(
                4,
                1,
                "handle_payload",
                60,
                395,
                {
                    "component": "decode",
                    "endpoint": "generate",
                    "namespace": "dynamo",
                    "instance_id": 2,
                    "x_request_id": "x-1",
                },
            ),
            host_id="a",
        ),
    ],
    # llm-d-router: pkg/epp/handlers/server.go, pkg/epp/requestcontrol/director.go, pkg/sidecar/proxy.
    "llm-d": [
        process(
            "llm-d-epp",
            "llm-d-router",
            span(1, 0, "gateway.request", 0, 300, kind=SERVER),
            span(
                2,
                1,
                "gateway.request_orchestration",
                1,
                6,
                {"gen_ai.request.model": "m", "gen_ai.request.id": "r-1"},
                SERVER,
            ),
            host_name="epp",
        ),
        process(
            "llm-d-sidecar",
            "llm-d-router/pkg/sidecar/proxy",
            span(
                3,
                1,
                "forward_request",
                10,
                290,
                {
                    "llm_d.pd_proxy.request_path": "/v1/chat/completions",
                    "llm_d.pd_proxy.connector": "nixlv2",
                    "llm_d.pd_proxy.disaggregation_used": True,
                },
                SERVER,
            ),
            span(4, 3, "prefill", 11, 61, {"llm_d.pd_proxy.request_id": "u-1"}),
            span(5, 3, "decode", 62, 289, {"llm_d.pd_proxy.decode.streaming": True}),
            host_name="pod",
        ),
        process(
            "vllm",
            "vllm.tracing.otel",
            span(
                6,
                5,
                "llm_request",
                63,
                288,
                {
                    "gen_ai.request.id": "u-1",
                    "gen_ai.latency.time_to_first_token": 0.02,
                    "gen_ai.latency.time_in_queue": 0.002,
                    "gen_ai.latency.time_in_model_prefill": 0.015,
                    "gen_ai.latency.time_in_model_decode": 0.2,
                    "gen_ai.usage.prompt_tokens": 50,
                    "gen_ai.usage.completion_tokens": 21,
                },
                SERVER,
            ),
            host_name="pod",
        ),
    ],
    # OpenRouter's documentation of Broadcast, and what programs of others read in it: names, tries, first token.
    # Not verified.
    "openrouter": [
        process(
            "openrouter",
            "",
            span(
                1,
                0,
                "LLM Generation",
                0,
                2000,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "openai/gpt-x",
                    "gen_ai.response.model": "openai/gpt-x",
                    "gen_ai.response.finish_reasons": ["stop"],
                    "gen_ai.usage.input_tokens": 40,
                    "gen_ai.usage.output_tokens": 60,
                    "gen_ai.usage.input_tokens.cached": 32,
                    "gen_ai.usage.output_tokens.reasoning": 8,
                    "gen_ai.usage.total_cost": 0.0025,
                    "session.id": "s-1",
                    "gen_ai.response.id": "gen-1",
                    "trace.metadata.openrouter.first_token_ms": 700.0,
                },
            ),
            span(2, 1, "provider attempt 1: A", 20, 220, {"span.metadata.attempt_index": 0}, error=True),
            span(3, 1, "provider attempt 2: B", 250, 1990, {"span.metadata.attempt_index": 1}),
            span(4, 1, "generation", 0, 2000),
        )
    ],
    # Portkey's documentation of its complete logs: GenAI conventions 1.40, service `portkey`; scope and kind are
    # those of
    # the published source of an older gateway.
    "portkey": [
        process(
            "portkey",
            "custom.genai.instrumentation",
            span(
                1,
                0,
                "chat gpt-4o",
                0,
                900,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "gpt-4o",
                    "gen_ai.response.model": "gpt-4o-2024-08-06",
                    "gen_ai.usage.input_tokens": 12,
                    "gen_ai.usage.output_tokens": 30,
                    "gen_ai.response.finish_reasons": ["stop"],
                },
                SERVER,
            ),
        )
    ],
    # Published source of Portkey's older gateway: conventions 1.37, no operation, other words for tokens.
    "portkey-older": [
        process(
            "portkey",
            "custom.genai.instrumentation",
            span(
                1,
                0,
                "request",
                0,
                900,
                {
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "gpt-4o",
                    "gen_ai.response.model": "gpt-4o",
                    "gen_ai.response.input_tokens": 12,
                    "gen_ai.response.output_tokens": 30,
                    "gen_ai.response.finish_reasons": ["stop"],
                },
                SERVER,
            ),
        )
    ],
    # langdb/ai-gateway: core/src/handler/chat.rs, executor/chat_completion, model/{mod,openai}.rs, guardrails.
    "langdb": [
        process(
            "langdb",
            "langdb-ai-gateway",
            span(1, 0, "api_invoke", 0, 600, {"user": "u"}),
            span(2, 1, "request_routing", 2, 12, {"router_name": "fast"}),
            span(
                3,
                1,
                "model_call",
                12,
                595,
                {"model_name": "gpt-4o-mini", "provider_name": "openai", "inference_model_name": "gpt-4o-mini-2024"},
            ),
            span(4, 3, "guard_evaluation", 14, 30, {"id": "pii", "label": "PII"}),
            span(
                5,
                3,
                "openai",
                31,
                590,
                {
                    "retries_left": 0,
                    "ttft": 209_000,
                    "cost": '{"cost": 0.001}',
                    "usage": '{"input_tokens": 9, "output_tokens": 12, "total_tokens": 21}',
                },
            ),
        )
    ],
    # nemoguardrails 0.24: tracing/{spans,constants}.py, guardrails/telemetry.py.
    "nemo-guardrails": [
        process(
            "app",
            "nemo_guardrails",
            span(1, 0, "guardrails.request", 0, 400, {"gen_ai.operation.name": "guardrails"}, SERVER),
            span(2, 1, "guardrails.rail", 1, 99, {"rail.type": "input", "rail.name": "self check input"}),
            span(3, 2, "guardrails.action", 2, 98, {"action.name": "self_check_input"}),
            span(
                4,
                3,
                "chat guard",
                3,
                97,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "guard",
                    "gen_ai.usage.input_tokens": 30,
                    "gen_ai.usage.output_tokens": 1,
                },
                CLIENT,
            ),
            span(5, 1, "guardrails.rail", 100, 390, {"rail.type": "generation", "rail.name": "generate user intent"}),
            span(
                6,
                5,
                "chat main",
                101,
                389,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "main",
                    "gen_ai.usage.input_tokens": 10,
                    "gen_ai.usage.output_tokens": 20,
                    "gen_ai.response.finish_reasons": ["stop"],
                },
                CLIENT,
            ),
        )
    ],
    # OpenTelemetry's GenAI conventions 0.66b2: an agent that calls a model twice; the second call is refused.
    "otel-genai": [
        process(
            "app",
            "opentelemetry.instrumentation.openai_v2",
            span(
                1,
                0,
                "invoke_agent helper",
                0,
                900,
                {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": "helper",
                    "gen_ai.conversation.id": "talk",
                },
            ),
            span(
                2,
                1,
                "chat m",
                10,
                410,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "m",
                    "gen_ai.response.model": "m-1",
                    "gen_ai.request.stream": True,
                    "gen_ai.response.time_to_first_chunk": 0.15,
                    "gen_ai.usage.input_tokens": 100,
                    "gen_ai.usage.output_tokens": 51,
                    "gen_ai.usage.cache_read.input_tokens": 80,
                    "gen_ai.usage.reasoning.output_tokens": 10,
                    "gen_ai.response.finish_reasons": ["tool_calls"],
                    "gen_ai.response.id": "resp-1",
                },
                CLIENT,
            ),
            span(3, 1, "execute_tool search", 420, 700, {"gen_ai.operation.name": "execute_tool"}),
            span(
                4,
                1,
                "chat m",
                710,
                730,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "m",
                    "error.type": "429",
                    "http.response.status_code": 429,
                },
                CLIENT,
                error=True,
            ),
        )
    ],
    # The conventions of 2024 (1.27): gen_ai.system, prompt_tokens, completion_tokens; the error as an event.
    "otel-genai-old": [
        process(
            "app",
            "opentelemetry.instrumentation.openai",
            span(
                1,
                0,
                "text_completion m",
                0,
                50,
                {
                    "gen_ai.operation.name": "text_completion",
                    "gen_ai.system": "openai",
                    "gen_ai.request.model": "m",
                    "gen_ai.usage.prompt_tokens": 7,
                    "gen_ai.usage.completion_tokens": 5,
                },
                CLIENT,
                events=(("exception", 50, {"exception.type": "APITimeoutError"}),),
                error=True,
            ),
        )
    ],
    # opentelemetry-semantic-conventions-ai 0.5.1, opentelemetry-instrumentation-openai 0.62: an event a chunk.
    "openllmetry": [
        process(
            "app",
            "opentelemetry.instrumentation.openai",
            span(1, 0, "story.workflow", 0, 320, {"traceloop.span.kind": "workflow", "traceloop.entity.name": "story"}),
            span(
                2,
                1,
                "openai.chat",
                10,
                310,
                {
                    "llm.request.type": "chat",
                    "gen_ai.system": "openai",
                    "gen_ai.request.model": "m",
                    "gen_ai.response.model": "m-1",
                    "gen_ai.is_streaming": True,
                    "gen_ai.usage.input_tokens": 5,
                    "gen_ai.usage.output_tokens": 3,
                    "gen_ai.usage.reasoning_tokens": 1,
                    "gen_ai.usage.cache_read_input_tokens": 4,
                    "gen_ai.response.finish_reason": "stop",
                },
                CLIENT,
                events=tuple(("gen_ai.content.completion.chunk", at, {}) for at in (110, 210, 310)),
            ),
        )
    ],
    # openinference-semantic-conventions 0.1.42, openinference-instrumentation-openai 0.1.66 (kind INTERNAL).
    "openinference": [
        process(
            "app",
            "openinference.instrumentation.openai",
            span(
                1,
                0,
                "ChatCompletion",
                0,
                500,
                {
                    "openinference.span.kind": "LLM",
                    "llm.model_name": "m",
                    "llm.response.model_name": "m-1",
                    "llm.token_count.prompt": 11,
                    "llm.token_count.completion": 22,
                    "llm.token_count.total": 33,
                    "llm.token_count.prompt_details.cache_read": 6,
                    "llm.token_count.completion_details.reasoning": 2,
                    "llm.cost.total": 0.002,
                    "llm.finish_reason": "stop",
                    "session.id": "s-1",
                },
                events=(("First Token Stream Event", 125, {}),),
            ),
        )
    ],
    # openlit 1.45: openlit/semcov, openlit/__helpers.py; times in seconds.
    "openlit": [
        process(
            "app",
            "openlit.otel.tracing",
            span(
                1,
                0,
                "chat m",
                0,
                800,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "m",
                    "gen_ai.response.model": "m-1",
                    "gen_ai.request.stream": True,
                    "gen_ai.server.time_to_first_token": 0.2,
                    "gen_ai.server.time_per_output_token": 0.01,
                    "gen_ai.usage.input_tokens": 8,
                    "gen_ai.usage.output_tokens": 40,
                    "gen_ai.usage.cost": 0.0004,
                    "gen_ai.response.finish_reasons": ["stop"],
                },
                CLIENT,
            ),
        )
    ],
    # langfuse 5.0.4: langfuse/_client/attributes.py; usage, cost and the instant are JSON.
    "langfuse": [
        process(
            "app",
            "langfuse-sdk",
            span(1, 0, "answer", 0, 700, {"langfuse.observation.type": "agent", "session.id": "s-1"}),
            span(
                2,
                1,
                "generate",
                100,
                600,
                {
                    "langfuse.observation.type": "generation",
                    "langfuse.observation.model.name": "m",
                    "langfuse.observation.completion_start_time": '"2026-01-01T00:00:00.350000Z"',
                    "langfuse.observation.usage_details": '{"input": 10, "output": 20, "total": 30}',
                    "langfuse.observation.cost_details": '{"total": 0.003}',
                },
            ),
        )
    ],
    # opentelemetry-instrumentation-botocore 0.66b2, extensions/bedrock.py.
    "bedrock": [
        process(
            "app",
            "opentelemetry.instrumentation.botocore.bedrock-runtime",
            span(
                1,
                0,
                "chat anthropic.claude",
                0,
                450,
                {
                    "rpc.system": "aws-api",
                    "rpc.service": "Bedrock Runtime",
                    "rpc.method": "ConverseStream",
                    "aws.request_id": "aws-1",
                    "http.status_code": 200,
                    "gen_ai.system": "aws.bedrock",
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "anthropic.claude",
                    "gen_ai.usage.input_tokens": 10,
                    "gen_ai.usage.output_tokens": 20,
                    "gen_ai.response.finish_reasons": ["end_turn"],
                },
                CLIENT,
            ),
        )
    ],
    # HTTP spans of a caller of Azure OpenAI behind API Management, as Microsoft documents paths and headers.
    "azure": [
        process(
            "app",
            "opentelemetry.instrumentation.httpx",
            span(
                1,
                0,
                "POST",
                0,
                350,
                {
                    "http.request.method": "POST",
                    "http.response.status_code": 401,
                    "server.address": "x.azure-api.net",
                    "url.full": "https://x.azure-api.net/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
                    "http.response.header.apim-request-id": ["apim-1"],
                },
                CLIENT,
            ),
        )
    ],
    # MLflow 3.17: mlflow/tracing/{constant,provider}.py (names, scope), mlflow/openai/autolog.py (an event a
    # chunk); JSON values.
    "databricks": [
        process(
            "app",
            "mlflow.tracing.provider",
            span(
                1,
                0,
                "Completions",
                0,
                300,
                {
                    "mlflow.spanType": '"CHAT_MODEL"',
                    "mlflow.traceRequestId": '"tr-1"',
                    "mlflow.spanInputs": '{"model": "databricks-llama", "messages": []}',
                    "mlflow.llm.model": '"databricks-llama"',
                    "mlflow.llm.cost": '{"input_cost": 0.001, "output_cost": 0.002, "total_cost": 0.003}',
                    "mlflow.chat.tokenUsage": (
                        '{"input_tokens": 5, "output_tokens": 6, "total_tokens": 11, "cache_read_input_tokens": 4}'
                    ),
                },
                events=tuple((f"mlflow.chunk.item.{index}", 100.0 + 50 * index, {}) for index in range(3)),
            ),
        )
    ],
}


def main() -> None:
    """Writes every sample as `NAME.jsonl`, one export request a line."""
    for number, (name, processes) in enumerate(SAMPLES.items(), 1):
        for one in processes:
            for made in one["scopeSpans"][0]["spans"]:
                made["traceId"] = f"{number:032x}"
                for link in made["links"]:
                    link["traceId"] = made["traceId"]
        lines = (json.dumps({"resourceSpans": [one]}, separators=(",", ":")) for one in processes)
        Path(__file__).with_name(f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
