    AND s.Timestamp >= (SELECT min(Start) FROM otel_traces_trace_id_ts WHERE TraceId IN {trace_ids:Array(String)})
    AND s.Timestamp < (SELECT max(End) + INTERVAL 1 SECOND FROM otel_traces_trace_id_ts WHERE TraceId IN {trace_ids:Array(String)})
