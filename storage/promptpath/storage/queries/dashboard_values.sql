SELECT
    arraySort(groupUniqArray(500)(toString(model))) AS models,
    arraySort(groupUniqArray(500)(toString(service))) AS services,
    arraySort(groupUniqArray(500)(toString(tenant))) AS tenants,
    arraySort(groupUniqArray(500)(toString(status))) AS statuses
FROM prompts
WHERE start_time >= fromUnixTimestamp64Nano({since_ns:Int64}, 'UTC')
    AND start_time < fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
