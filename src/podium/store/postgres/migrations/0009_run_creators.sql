-- Which login created each run, and which run of its own a host created it for.
--
-- What a run may do is written in its first entry, which other machines execute. A machine believes this entry only if
-- a person's login created the run, or if it can derive the entry from the record of the run's parent. So the server
-- records the login (session_user, which a host cannot change), and a host creates runs only for a run that it holds.

CREATE FUNCTION podium.is_host_login(login text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT starts_with(login, 'podium_host_') OR EXISTS (SELECT FROM podium.host WHERE host.login = is_host_login.login)
$$;

-- The login is empty if it is not known because the run is older than this column. The parent is null until a host has
-- named it, and always null for the runs of persons.
ALTER TABLE podium.run ADD COLUMN login text NOT NULL DEFAULT '';
ALTER TABLE podium.run ADD COLUMN parent text;
-- A run that has ended counts too: it can be forked.
UPDATE podium.run SET login = session_user
WHERE
    -- Only the newest owner of a run is known.
    (epoch = 1 AND EXISTS (
        SELECT FROM podium.owner WHERE owner.id = run.owner AND NOT podium.is_host_login(owner.login)
    ))
    OR NOT EXISTS (
        SELECT FROM podium.host UNION ALL SELECT FROM podium.refusal UNION ALL SELECT FROM podium.job
        UNION ALL SELECT FROM podium.owner WHERE podium.is_host_login(owner.login)
    );
ALTER TABLE podium.run ALTER COLUMN login SET DEFAULT session_user;
CREATE INDEX run_login ON podium.run (login);

-- Hosts with an older Podium execute what other hosts wrote without a check, so they get no more runs.
UPDATE podium.job SET store_version = greatest(store_version, 9) WHERE NOT is_over;

-- Leases

-- The end of a lease that starts now. A host renews its lease every few seconds, so a longer one would only keep other
-- hosts from its runs after its end.
CREATE FUNCTION podium.compute_lease_end(lease_seconds double precision) RETURNS double precision
LANGUAGE sql VOLATILE SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT extract(epoch FROM clock_timestamp())::double precision + least(lease_seconds, 600)
$$;

UPDATE podium.owner SET until = least(until, podium.compute_lease_end(600)) WHERE podium.is_host_login(login);

CREATE OR REPLACE FUNCTION podium.renew_owner_as_host(
    owner_id text, host text, boot text, pid integer, born text, lease_seconds double precision
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    INSERT INTO podium.owner (id, host, boot, pid, born, until, login)
    VALUES (owner_id, host, boot, pid, born, podium.compute_lease_end(lease_seconds), session_user)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until WHERE owner.login = session_user;
    RETURN CASE WHEN NOT FOUND THEN podium.refuse('renew', '', 'the process belongs to another login') END;
END $$;

-- Whether a process of this login owns a run, and its lease has not lapsed.
CREATE FUNCTION podium.holds_run(run_id text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM podium.run JOIN podium.owner ON owner.id = run.owner
        WHERE run.id = run_id AND owner.login = session_user AND owner.until > extract(epoch FROM clock_timestamp())
    )
$$;

-- Why a write about a run and its parent is refused: a lease of this login lapsed, or the login never held them.
CREATE FUNCTION podium.explain_refusal(run_id text, parent_id text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT CASE
        WHEN podium.is_own_run(run_id) AND (parent_id = '' OR podium.is_own_run(parent_id))
            AND NOT (podium.holds_run(run_id) AND (parent_id = '' OR podium.holds_run(parent_id))) THEN 'lease'
        ELSE 'forged'
    END
$$;

-- Runs

-- Creates a run that belongs to a process of this host. The run can be listed, queued and executed only after the host
-- has named its parent. Machines name files and refs after a run, so its id is one plain word.
CREATE OR REPLACE FUNCTION podium.begin_run_as_host(run_id text, owner_id text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF coalesce(run_id, '') !~ '\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z' THEN
        RETURN podium.refuse('begin', run_id, 'forged');
    END IF;
    INSERT INTO podium.run (id, created, owner, epoch, login)
    SELECT run_id, extract(epoch FROM clock_timestamp()), owner_id, 1, session_user
    FROM podium.owner
    WHERE id = owner_id AND login = session_user AND until > extract(epoch FROM clock_timestamp())
    ON CONFLICT (id) DO NOTHING;
    RETURN CASE WHEN NOT FOUND THEN podium.refuse('begin', run_id, CASE WHEN EXISTS (
        SELECT FROM podium.owner
        WHERE id = owner_id AND login = session_user AND until <= extract(epoch FROM clock_timestamp())
    ) THEN 'lease' ELSE 'forged' END) END;
END $$;

-- Records the run for which this host has created another one, once. Returns false unless the host has created the
-- run, holds both, and names no other parent than before. Only scheduled runs have no parent; other machines do not
-- execute them.
CREATE FUNCTION podium.bind_parent(run_id text, parent_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF parent_id IS NULL OR NOT podium.holds_run(run_id)
        OR (parent_id <> '' AND (parent_id = run_id OR NOT podium.holds_run(parent_id))) THEN
        RETURN false;
    END IF;
    UPDATE podium.run SET parent = parent_id
    WHERE id = run_id AND login = session_user AND coalesce(parent, parent_id) = parent_id;
    RETURN FOUND;
END $$;

-- Whether this host has created a run and has named its parent.
CREATE FUNCTION podium.has_created(run_id text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT EXISTS (SELECT FROM podium.run WHERE id = run_id AND login = session_user AND parent IS NOT NULL)
$$;

-- As before, and the run must be the host's own creation. A job without a parent is for the host itself.
CREATE OR REPLACE FUNCTION podium.add_job_as_host(
    run_id text, parent text, labels text[], host text, priority integer, team text, provider text, repository text,
    store_version integer
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF (parent = '' AND NOT EXISTS (
        SELECT FROM podium.host AS known WHERE known.login = session_user AND known.name = add_job_as_host.host
    )) OR NOT podium.bind_parent(run_id, parent) THEN
        RETURN podium.refuse('add job', run_id, podium.explain_refusal(run_id, parent));
    END IF;
    INSERT INTO podium.job (run, parent, labels, host, priority, team, provider, repository, store_version)
    VALUES (run_id, parent, labels, host, priority, team, provider, repository, greatest(store_version, 9))
    ON CONFLICT (run) DO NOTHING;
    RETURN NULL;
END $$;

-- As before, and only for a run whose parent is known: the host names it in the run's first entry.
CREATE OR REPLACE FUNCTION podium.add_worker_as_host(run_id text, root_path text, branch_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF NOT podium.holds_run(run_id) OR NOT podium.has_created(run_id) THEN
        RETURN podium.refuse('add worker', run_id, podium.explain_refusal(run_id, ''));
    END IF;
    INSERT INTO podium.worker (run, root, branch, is_open) VALUES (run_id, root_path, branch_name, 1);
    RETURN NULL;
END $$;

-- The timeline

-- Whether two JSON values are equal, whatever the order of their keys.
CREATE FUNCTION podium.is_same(one json, other json) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT one::jsonb IS NOT DISTINCT FROM other::jsonb
$$;

-- Whether a run has already asked with this id. The answer would count for another request than the person saw.
CREATE FUNCTION podium.has_asked(run_id text, request_id text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM podium.entry
        WHERE run = run_id AND kind IN ('permission_asked', 'question_asked')
            AND convert_from(line, 'UTF8')::json->'event'->>'id' IS NOT DISTINCT FROM request_id
    )
$$;

-- Whether an entry is not what it claims to be, or claims something that only a person or a commander can say. That is
-- posted to the run's mailbox, and the entry takes the message from there. A run can deny a request without an answer.
-- The texts in an entry can differ from those in the message, because secrets in them are replaced.
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
                    AND posted->>'sender' IS NOT DISTINCT FROM entry->'event'->>'sender'
                    AND podium.is_same(posted->'budget', entry->'event'->'budget')
                    AND podium.is_same(posted->'plan', entry->'event'->'plan')
            )
        )
$$;

-- As before, and the entries continue the timeline without a gap. The first entry says what the run may do, so it is
-- written once, by the login that created the run, and names the parent that the host has named or now names.
CREATE OR REPLACE FUNCTION podium.append_entries_as_host(
    owner_id text, held_runs text[], held_epochs bigint[],
    runs text[], seqs bigint[], kinds text[], keys text[], lines bytea[], hashes bytea[], mails bigint[]
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    refused text;
    first record;
    first_parent text;
BEGIN
    PERFORM FROM podium.run WHERE id = ANY (held_runs) ORDER BY id FOR SHARE;
    SELECT new.run INTO refused FROM unnest(runs) AS new (run)
    WHERE NOT EXISTS (
        SELECT FROM unnest(held_runs, held_epochs) AS held (id, epoch)
        JOIN podium.run USING (id, epoch) JOIN podium.owner ON owner.id = run.owner
        WHERE held.id = new.run AND owner.id = owner_id AND owner.login = session_user
    ) LIMIT 1;
    IF FOUND THEN
        RETURN podium.refuse('append', refused, 'lease');
    END IF;
    SELECT new.run INTO refused FROM unnest(runs, seqs, kinds, lines, mails) AS new (run, seq, kind, line, mail)
    WHERE podium.is_forged(new.run, new.seq, new.kind, convert_from(new.line, 'UTF8')::json, new.mail) LIMIT 1;
    IF FOUND THEN
        RETURN podium.refuse('append', refused, 'forged');
    END IF;
    SELECT new.run INTO refused FROM (
        SELECT given.run, min(given.seq) AS first, max(given.seq) AS last, count(DISTINCT given.seq) AS number,
            (SELECT coalesce(max(entry.seq), 0) FROM podium.entry WHERE entry.run = given.run) AS known
        FROM unnest(runs, seqs) AS given (run, seq) GROUP BY given.run
    ) AS new
    WHERE new.first <> new.known + 1 OR new.last - new.first + 1 <> new.number LIMIT 1;
    IF NOT FOUND THEN
        SELECT new.run INTO refused FROM unnest(runs, kinds, lines) AS new (run, kind, line)
        WHERE new.kind IN ('permission_asked', 'question_asked')
        GROUP BY new.run, convert_from(new.line, 'UTF8')::json->'event'->>'id' HAVING count(*) > 1 LIMIT 1;
    END IF;
    IF FOUND THEN
        RETURN podium.refuse('append', refused, 'forged');
    END IF;
    FOR first IN
        SELECT new.run, new.seq, new.kind, convert_from(new.line, 'UTF8')::json->'event' AS event
        FROM unnest(runs, seqs, kinds, lines) AS new (run, seq, kind, line) JOIN podium.run ON run.id = new.run
        WHERE new.kind = 'run_started' OR (new.seq = 1 AND podium.is_host_login(run.login))
    LOOP
        IF first.seq <> 1 OR first.kind <> 'run_started' THEN
            RETURN podium.refuse('append', first.run, 'forged');
        END IF;
        first_parent := coalesce(first.event->'errand'->>'parent', '');
        IF NOT podium.bind_parent(first.run, first_parent) THEN
            RETURN podium.refuse('append', first.run, podium.explain_refusal(first.run, first_parent));
        END IF;
    END LOOP;
    INSERT INTO podium.entry (run, seq, epoch, kind, key, line, hash)
    SELECT new.run, new.seq, held.epoch, new.kind, new.key, new.line, new.hash
    FROM unnest(runs, seqs, kinds, keys, lines, hashes) AS new (run, seq, kind, key, line, hash)
    JOIN unnest(held_runs, held_epochs) AS held (id, epoch) ON held.id = new.run;
    UPDATE podium.mail SET taken = new.seq
    FROM unnest(runs, seqs, mails) AS new (run, seq, mail)
    WHERE mail.id = new.mail AND mail.run = new.run;
    RETURN NULL;
END $$;

-- As before, and a message cannot take the place of an answer, whose ref is the id of its request.
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
    IF is_allowed IS NOT TRUE OR podium.has_repeated_key(posted)
        OR (posted->>'type' <> 'permission_answered' AND podium.has_asked(run_id, message_ref)) THEN
        RETURN podium.refuse('post', run_id, 'forged');
    END IF;
    INSERT INTO podium.mail (run, ref, at, line)
    VALUES (run_id, message_ref, extract(epoch FROM clock_timestamp()), message)
    ON CONFLICT (run, ref) DO NOTHING;
    RETURN NULL;
END $$;

REVOKE ALL ON FUNCTION
    podium.compute_lease_end, podium.holds_run, podium.explain_refusal, podium.bind_parent, podium.has_created, podium.is_same, podium.has_asked
    FROM PUBLIC;
SELECT podium.grant_to_hosts();
