    `Exemplars.FilteredAttributes`,
    `Exemplars.TimeUnix`,
    `Exemplars.Value`,
    `Exemplars.SpanId`,
    `Exemplars.TraceId`
