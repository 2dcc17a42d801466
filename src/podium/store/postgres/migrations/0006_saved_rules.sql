-- The rules that people saved with "always", for the workers on hosts. Hosts read them and cannot change them.

CREATE TABLE podium.saved_rule (
    machine text NOT NULL,
    repo text NOT NULL,
    rule text NOT NULL,
    PRIMARY KEY (machine, repo, rule)
);

-- As before, and a host can also deny a request of its own runs that nobody answered in time. It cannot allow any.
CREATE OR REPLACE FUNCTION podium.post_mail_as_host(run_id text, message_ref text, message bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    posted json := convert_from(message, 'UTF8')::json;
    is_allowed boolean := CASE posted->>'type'
        WHEN 'permission_answered' THEN podium.is_own_run(run_id)
            AND posted->>'decision' = 'deny' AND posted->>'by' = 'commander' AND posted->>'channel' = 'timeout'
        WHEN 'stop_asked' THEN podium.is_own_run(run_id)
            OR EXISTS (SELECT FROM podium.job WHERE run = run_id AND podium.is_own_run(parent))
        WHEN 'message_received' THEN podium.is_own_run(posted->>'sender')
            AND podium.is_related(run_id, posted->>'sender')
        WHEN 'message_acknowledged' THEN EXISTS (
            SELECT FROM podium.run JOIN podium.owner ON owner.id = run.owner
            WHERE owner.login = session_user AND podium.is_related(run_id, run.id)
        )
        ELSE false
    END;
BEGIN
    IF is_allowed IS NOT TRUE OR podium.has_repeated_key(posted) THEN
        RETURN podium.refuse('post', run_id, 'forged');
    END IF;
    INSERT INTO podium.mail (run, ref, at, line)
    VALUES (run_id, message_ref, extract(epoch FROM clock_timestamp()), message)
    ON CONFLICT (run, ref) DO NOTHING;
    RETURN NULL;
END $$;

SELECT podium.grant_to_hosts();
