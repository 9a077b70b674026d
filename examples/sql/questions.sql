-- name: What are the top causes of dead letters, by day?
SELECT date, code, ended.receiver, any_value(cause) AS cause, count(*) AS letters
FROM (SELECT date, code, reason, regexp_replace(receiver, '^one:', '') AS receiver FROM fact_ended) AS ended
LEFT JOIN (SELECT receiver, code, arg_max(cause, letters) AS cause FROM triage GROUP BY ALL) USING (receiver, code)
WHERE reason = 'dead'
GROUP BY date, code, ended.receiver
QUALIFY row_number() OVER (PARTITION BY date ORDER BY letters DESC, ended.receiver) <= 3
ORDER BY date, letters DESC, ended.receiver;

-- name: Within how long are 99 of 100 messages acknowledged, by channel?
WITH counts AS (
    SELECT channel, generate_subscripts(buckets, 1) AS bucket, unnest(buckets) AS messages FROM latency
), sums AS (
    SELECT channel, bucket, sum(sum(messages)) OVER (PARTITION BY channel ORDER BY bucket) AS upto,
        sum(sum(messages)) OVER (PARTITION BY channel) AS acknowledged
    FROM counts GROUP BY channel, bucket
)
SELECT channel, any_value(acknowledged)::BIGINT AS acknowledged, [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000, 3600000
    ][min(bucket)] AS p99_ms
FROM sums WHERE upto >= 0.99 * acknowledged AND acknowledged > 0
GROUP BY channel ORDER BY p99_ms DESC NULLS FIRST, channel;

-- name: Which receivers have the oldest backlog?
SELECT receiver, count(*) AS pending, make_timestamp(min(log_id)) AS oldest,
    date_diff('hour', make_timestamp(min(log_id)), (SELECT make_timestamp(max(ms) * 1000) FROM fact_ended)) AS hours
FROM deliveries WHERE given > taken
GROUP BY receiver ORDER BY oldest, receiver;

-- name: How often does a redrive succeed?
WITH ends AS (
    SELECT log_id, CASE
            WHEN bool_or(reason = 'dead') THEN 'dead' WHEN bool_or(reason = 'settled') THEN 'settled' ELSE any_value(reason)
        END AS outcome
    FROM fact_ended WHERE reason <> 'returned' GROUP BY log_id
)
SELECT redriven.code, count(*) AS redriven, count_if(outcome = 'settled')::INT AS acknowledged,
    count_if(outcome = 'dead')::INT AS dead_again, count_if(outcome IS NULL)::INT AS pending,
    round(100 * count_if(outcome = 'settled') / count(*)) AS percent
FROM fact_redriven AS redriven LEFT JOIN ends ON ends.log_id = redriven.log_id
WHERE redriven.session IS NOT NULL
GROUP BY redriven.code ORDER BY redriven DESC;

-- name: How does the volume grow?
SELECT date, sum(persistent)::BIGINT AS messages, sum(deliveries)::BIGINT AS deliveries, sum(bytes)::BIGINT AS bytes,
    round(100 * (messages / lag(messages) OVER (ORDER BY date) - 1)) AS growth_percent
FROM capacity GROUP BY date ORDER BY date;
