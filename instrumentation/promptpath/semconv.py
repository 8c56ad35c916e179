"""Names that every part of Promptpath shares: stages, parts of a TTFT, attributes, statuses.

The `promptpath.*` names are this project's own. The rest are the OpenTelemetry semantic conventions
(GenAI, HTTP, resource), spelt here once because most of them are still incubating there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Domain(StrEnum):
    """Where a stage spends its time; the dashboard colours by it."""

    REQUEST_NETWORK = "request network"
    CONTROL_PLANE = "control plane"
    CPU = "cpu"
    GPU = "gpu"
    GPU_FABRIC = "gpu fabric"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """Parts of a TTFT, in the order of a prompt's day. They add up to it exactly."""

    NETWORK = "network"
    GATEWAY = "gateway"
    ROUTER = "router"
    TOKENIZE = "tokenize"
    QUEUE = "queue"
    PREFILL = "prefill"
    POST = "post"
    STREAM = "stream"
    UNATTRIBUTED = "unattributed"


class Stage(StrEnum):
    """What a hop was doing: the value of `promptpath.stage`.

    `SERVER` and `CALL` contain other stages. `TRANSIT` and `UNATTRIBUTED` are derived, never emitted.
    """

    CLIENT = "client"
    DNS = "dns"
    TCP = "tcp"
    TLS = "tls"
    CALL = "call"
    TRANSIT = "transit"
    EDGE = "edge"
    GATEWAY = "gateway"
    ROUTER = "router"
    SERVER = "server"
    INGRESS = "ingress"
    PARSE = "parse"
    TOKENIZE = "tokenize"
    QUEUE = "queue"
    HOP = "hop"
    TRANSFER = "transfer"
    PREFILL = "prefill"
    KV_TRANSFER = "kv_transfer"
    DECODE = "decode"
    DETOKENIZE = "detokenize"
    SAFETY = "safety"
    STRUCTURE = "structure"
    STREAM = "stream"
    LOAD = "load"
    UNATTRIBUTED = "unattributed"


STAGE_DOMAIN: Final[dict[Stage, Domain]] = {
    Stage.CLIENT: Domain.REQUEST_NETWORK,
    Stage.DNS: Domain.REQUEST_NETWORK,
    Stage.TCP: Domain.REQUEST_NETWORK,
    Stage.TLS: Domain.REQUEST_NETWORK,
    Stage.CALL: Domain.REQUEST_NETWORK,
    Stage.TRANSIT: Domain.REQUEST_NETWORK,
    Stage.EDGE: Domain.REQUEST_NETWORK,
    Stage.GATEWAY: Domain.CONTROL_PLANE,
    Stage.ROUTER: Domain.CONTROL_PLANE,
    Stage.SERVER: Domain.UNKNOWN,
    Stage.INGRESS: Domain.CPU,
    Stage.PARSE: Domain.CPU,
    Stage.TOKENIZE: Domain.CPU,
    Stage.QUEUE: Domain.CPU,
    Stage.HOP: Domain.REQUEST_NETWORK,
    Stage.TRANSFER: Domain.GPU_FABRIC,
    Stage.PREFILL: Domain.GPU,
    Stage.KV_TRANSFER: Domain.GPU_FABRIC,
    Stage.DECODE: Domain.GPU,
    Stage.DETOKENIZE: Domain.CPU,
    Stage.SAFETY: Domain.CPU,
    Stage.STRUCTURE: Domain.CPU,
    Stage.STREAM: Domain.REQUEST_NETWORK,
    Stage.LOAD: Domain.GPU,
    Stage.UNATTRIBUTED: Domain.UNKNOWN,
}

#: Which part of the TTFT a stage's own time is. `call` and `client` own time is transit (network) where the callee was
#: seen and unattributed where it was not; `server` own time is unattributed. `decode` and `load` are in no part.
STAGE_PART: Final[dict[Stage, Part | None]] = {
    Stage.CLIENT: Part.NETWORK,
    Stage.DNS: Part.NETWORK,
    Stage.TCP: Part.NETWORK,
    Stage.TLS: Part.NETWORK,
    Stage.CALL: Part.NETWORK,
    Stage.TRANSIT: Part.NETWORK,
    Stage.EDGE: Part.GATEWAY,
    Stage.GATEWAY: Part.GATEWAY,
    Stage.ROUTER: Part.ROUTER,
    Stage.SERVER: Part.UNATTRIBUTED,
    Stage.INGRESS: Part.NETWORK,
    Stage.PARSE: Part.TOKENIZE,
    Stage.TOKENIZE: Part.TOKENIZE,
    Stage.QUEUE: Part.QUEUE,
    Stage.HOP: Part.NETWORK,
    Stage.TRANSFER: Part.PREFILL,
    Stage.PREFILL: Part.PREFILL,
    Stage.KV_TRANSFER: Part.PREFILL,
    Stage.DECODE: None,
    Stage.DETOKENIZE: Part.POST,
    Stage.SAFETY: Part.POST,
    Stage.STRUCTURE: Part.POST,
    Stage.STREAM: Part.STREAM,
    Stage.LOAD: None,
    Stage.UNATTRIBUTED: Part.UNATTRIBUTED,
}


class Status(StrEnum):
    """How a prompt ended. A hang-up after a complete answer is `OK`."""

    OK = "ok"
    ERROR = "error"
    RATE_LIMITED = "rate_limited"
    REJECTED = "rejected"
    BLOCKED = "blocked"
    TIMEOUT = "timeout"
    CLIENT_ABORT = "client_abort"
    SERVER_ABORT = "server_abort"


class Abort(StrEnum):
    """Values of `promptpath.abort`: who ended the answer early."""

    CLIENT = "client"
    SERVER = "server"
    TIMEOUT = "timeout"


#: Paths on which an HTTP request is an inference call; `*` stands for one path segment, or a part of one. A match is on
#: the end of the path, so that a mount prefix does not hide it.
INFERENCE_PATHS: Final[tuple[str, ...]] = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/generate",
    "/generate_stream",
    "/api/chat",
    "/api/generate",
    "/v2/models/*/infer",
    "/models/*:generateContent",
    "/models/*:streamGenerateContent",
)

#: `gen_ai.operation.name` values that are inference calls; agents, tools, workflows and guardrails are not.
INFERENCE_OPERATIONS: Final[tuple[str, ...]] = ("chat", "text_completion", "generate_content", "embeddings")

# --- promptpath.* attributes of spans ---------------------------------------------------------------------------------
STAGE: Final = "promptpath.stage"
PROMPT_ID: Final = "promptpath.prompt.id"
TOKEN_GAPS_US: Final = "promptpath.token.gaps_us"
TOKEN_COUNTS: Final = "promptpath.token.counts"
QUEUE_POSITION: Final = "promptpath.queue.position"
BATCH_SIZE: Final = "promptpath.batch.size"
PREEMPTIONS: Final = "promptpath.preemptions"
PREEMPTED_US: Final = "promptpath.preempted_us"
PREFILL_CHUNKS: Final = "promptpath.prefill.chunks"
PREFIX_CACHE_HIT_TOKENS: Final = "promptpath.prefix_cache.hit_tokens"
SPEC_PROPOSED: Final = "promptpath.spec.proposed"
SPEC_ACCEPTED: Final = "promptpath.spec.accepted"
TCP_RTT_US: Final = "promptpath.tcp.rtt_us"
TCP_RETRANSMITS: Final = "promptpath.tcp.retransmits"
ATTEMPT: Final = "promptpath.attempt"
TENANT: Final = "promptpath.tenant"
ABORT: Final = "promptpath.abort"
DETOKENIZE_TOTAL_US: Final = "promptpath.detokenize.total_us"
STREAM_TOTAL_US: Final = "promptpath.stream.total_us"
#: Time from the span's start to the first byte (or the headers) of a response, where it was seen; no token.
FIRST_BYTE_US: Final = "promptpath.first_byte_us"
GPU_UUIDS: Final = "promptpath.gpu.uuids"
#: On an engine's own span: its stages are told by spans of ours beside it, and its numbers are not to be drawn again.
STAGES_ELSEWHERE: Final = "promptpath.stages_elsewhere"

# --- OpenTelemetry: GenAI ---------------------------------------------------------------------------------------------
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_P: Final = "gen_ai.request.top_p"
GEN_AI_REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_WORKFLOW_NAME: Final = "gen_ai.workflow.name"
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"

# --- OpenTelemetry: HTTP, network, errors, resource -------------------------------------------------------------------
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
HTTP_ROUTE: Final = "http.route"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
CLIENT_ADDRESS: Final = "client.address"
NETWORK_PEER_ADDRESS: Final = "network.peer.address"
NETWORK_PEER_PORT: Final = "network.peer.port"
ERROR_TYPE: Final = "error.type"
HTTP_REQUEST_ID: Final = "http.request.header.x-request-id"
HOST_ID: Final = "host.id"
HOST_NAME: Final = "host.name"
PROCESS_PID: Final = "process.pid"
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
