-- Rules that the audit proves, for a warehouse that has copies of the tables. Each query returns the rows that break a rule.
-- Messages in the queue `one:client/joe` end there, and their dead letters are of `client/joe`.

-- name: Each delivery ends at most once
SELECT receiver, log_id, given, taken FROM deliveries WHERE taken > given;

-- name: Each dead letter of a stored message has an end
SELECT place, receiver, message_id FROM letters
WHERE is_persistent AND NOT EXISTS (
    FROM fact_ended AS ended
    WHERE ended.reason = 'dead' AND regexp_replace(ended.receiver, '^one:', '') = letters.receiver
        AND ended.log_id = TRY_CAST(message_id AS BIGINT)
);

-- name: Each dead end has a dead letter, or was redriven or discarded
WITH removed AS (
    SELECT split_part(letter, '-', 1)::BIGINT AS ms, count(*) AS number
    FROM (SELECT letter FROM fact_redriven UNION SELECT letter FROM fact_discarded) GROUP BY ALL
), missing AS (
    SELECT ms, count(*) AS number, any_value(receiver) AS receiver FROM fact_ended AS ended
    WHERE reason = 'dead' AND ms > (SELECT min(ms) FROM letters) AND ms <= (SELECT max(ms) FROM letters) AND NOT EXISTS (
        FROM letters WHERE letters.receiver = regexp_replace(ended.receiver, '^one:', '')
            AND TRY_CAST(message_id AS BIGINT) = ended.log_id
    )
    GROUP BY ms
)
SELECT ms, receiver, missing.number - coalesce(removed.number, 0) AS letters
FROM missing LEFT JOIN removed USING (ms) WHERE missing.number > coalesce(removed.number, 0);

-- name: Each row is there once
SELECT 'fact_ended' AS name, place, number FROM fact_ended GROUP BY ALL HAVING count(*) > 1
UNION ALL SELECT 'fact_published', place, log_id FROM fact_published GROUP BY ALL HAVING count(*) > 1;
