-- Which deliveries were expected, and which have ended: for DuckDB, over the tables of the pipeline under their own names.
-- docs/how-to/analysing.md explains how to open them.

CREATE OR REPLACE VIEW matches AS
SELECT channel, pattern
FROM (SELECT DISTINCT channel FROM fact_published) JOIN (SELECT DISTINCT pattern FROM intervals) ON
    pattern = channel
    OR NOT regexp_matches(channel, '^/(meta|service|ret|__sys__)(/|$)') AND (
        pattern LIKE '%/**' AND starts_with(channel, pattern[:-3])
        OR pattern LIKE '%/*' AND starts_with(channel, pattern[:-2]) AND NOT contains(channel[length(pattern):], '/')
    );

-- A receiver is a session, or a shared queue, from which sessions lease messages.
CREATE OR REPLACE VIEW given AS
SELECT DISTINCT session AS receiver, log_id
FROM fact_published JOIN matches USING (channel) JOIN intervals USING (pattern)
WHERE from_id < log_id AND (until_id IS NULL OR log_id <= until_id)
UNION ALL SELECT receiver, log_id FROM fact_addressed
UNION ALL SELECT session, log_id FROM fact_leased
UNION ALL SELECT queue, log_id FROM fact_returned
UNION ALL SELECT session, log_id FROM fact_redriven WHERE session IS NOT NULL;

CREATE OR REPLACE VIEW taken AS
SELECT receiver, log_id FROM fact_ended
UNION ALL SELECT queue, log_id FROM fact_leased;

CREATE OR REPLACE VIEW deliveries AS
SELECT receiver, log_id, sum(given) AS given, sum(taken) AS taken
FROM (
    SELECT receiver, log_id, 1 AS given, 0 AS taken FROM given
    UNION ALL SELECT receiver, log_id, 0, 1 FROM taken
)
GROUP BY ALL;
