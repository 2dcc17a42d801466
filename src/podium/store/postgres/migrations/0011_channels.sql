-- Events name the interface through which a person acted. An older release cannot read the new interfaces.

-- Who added each schedule. Empty for a schedule that is older than this column.
ALTER TABLE podium.schedule ADD COLUMN author text NOT NULL DEFAULT '';

UPDATE podium.job SET store_version = greatest(store_version, 11) WHERE NOT is_over;

-- As before, and an entry must name the same interface as the message that it was taken from.
CREATE OR REPLACE FUNCTION podium.is_forged(run_id text, seq bigint, kind text, entry json, mail_id bigint)
RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT entry->>'run' IS DISTINCT FROM run_id
        OR (entry->>'seq')::bigint IS DISTINCT FROM seq
        OR entry->'event'->>'type' IS DISTINCT FROM kind
        OR podium.has_repeated_key(entry)
        OR podium.has_repeated_key(entry->'event')
        OR (
            kind IN ('permission_asked', 'question_asked') AND podium.has_asked(run_id, entry->'event'->>'id')
        )
        OR (
            (
                kind IN ('permission_answered', 'question_answered', 'budget_changed', 'member_changed')
                AND NOT (kind = 'permission_answered' AND entry->'event'->>'decision' = 'deny')
                OR kind = 'message_received' AND coalesce(entry->'event'->>'by', '') <> 'Podium'
            )
            AND NOT EXISTS (
                SELECT FROM (
                    SELECT convert_from(line, 'UTF8')::json AS posted FROM podium.mail
                    WHERE id = mail_id AND run = run_id AND taken IS NULL
                ) AS message
                WHERE posted->>'type' = kind
                    AND posted->>'id' IS NOT DISTINCT FROM entry->'event'->>'id'
                    AND posted->>'decision' IS NOT DISTINCT FROM entry->'event'->>'decision'
                    AND posted->>'rule' IS NOT DISTINCT FROM entry->'event'->>'rule'
                    AND (
                        kind <> 'question_answered'
                        OR posted->>'text' IS NOT DISTINCT FROM entry->'event'->>'text'
                        OR strpos(entry->'event'->>'text', '[') > 0
                    )
                    AND posted->>'at' IS NOT DISTINCT FROM entry->'event'->>'at'
                    AND posted->>'digest' IS NOT DISTINCT FROM entry->'event'->>'digest'
                    AND posted->>'member' IS NOT DISTINCT FROM entry->'event'->>'member'
                    AND posted->>'model' IS NOT DISTINCT FROM entry->'event'->>'model'
                    AND posted->>'to' IS NOT DISTINCT FROM entry->'event'->>'to'
                    AND posted->>'by' IS NOT DISTINCT FROM entry->'event'->>'by'
                    AND posted->>'channel' IS NOT DISTINCT FROM entry->'event'->>'channel'
                    AND posted->>'sender' IS NOT DISTINCT FROM entry->'event'->>'sender'
                    AND podium.is_same(posted->'budget', entry->'event'->'budget')
                    AND podium.is_same(posted->'plan', entry->'event'->'plan')
            )
        )
$$;
