    -- A host is what the assembler takes for one: the id, else the name, else the node, the pod, the process.
    coalesce(
        nullIf(ResourceAttributes['host.id'], ''), nullIf(ResourceAttributes['host.name'], ''),
        nullIf(ResourceAttributes['k8s.node.name'], ''), nullIf(ResourceAttributes['k8s.pod.name'], ''),
        nullIf(ResourceAttributes['service.instance.id'], ''), ServiceName) AS host,
    coalesce(
        nullIf(Attributes['hw.id'], ''), nullIf(Attributes['hw.name'], ''), nullIf(Attributes['network.interface.name'], ''),
        nullIf(Attributes['system.device'], ''), nullIf(Attributes['cpu.logical_number'], ''), nullIf(Attributes['device'], ''),
        '') AS device,
    MetricName AS metric,
    MetricUnit AS unit,
    TimeUnix AS time,
    -- Bit 0: nothing was recorded at this time.
    if(bitAnd(Flags, 1) = 1, NULL, Value) AS value,
    Attributes AS attributes,
    ServiceName AS service,
    ResourceAttributes['host.name'] AS host_name
