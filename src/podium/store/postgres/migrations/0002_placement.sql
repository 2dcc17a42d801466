-- Hosts, jobs and limits of a fleet, and the functions through which hosts write.
--
-- Each host logs in with a role of its own, which is a member of podium_host. A host reads the tables but writes to
-- none of them. The functions below run with the rights of their owner and check the login of the session
-- (session_user, which a host cannot change) and the epoch of the run. What they refuse is recorded in refusal. They
-- return the reason for a refusal instead of raising an error, because an error would also undo the record.

CREATE TABLE podium.host (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    login text NOT NULL UNIQUE,
    labels text[] NOT NULL DEFAULT '{}',
    slots integer NOT NULL DEFAULT 0 CHECK (slots >= 0),
    version text NOT NULL DEFAULT '',
    store_version integer NOT NULL DEFAULT 0,
    seen timestamptz,
    clock_offset double precision NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'gone' CHECK (state IN ('active', 'draining', 'gone')),
    is_drain_asked boolean NOT NULL DEFAULT false
);

-- What a host must offer for a run. The queue of the placement engine has a copy, which hosts can forge.
CREATE TABLE podium.job (
    run text PRIMARY KEY REFERENCES podium.run (id) ON DELETE CASCADE,
    parent text NOT NULL DEFAULT '',
    labels text[] NOT NULL DEFAULT '{}',
    host text NOT NULL DEFAULT '',
    priority integer NOT NULL DEFAULT 0,
    team text NOT NULL DEFAULT '',
    provider text NOT NULL DEFAULT '',
    repository text NOT NULL DEFAULT '',
    store_version integer NOT NULL DEFAULT 0,
    is_over boolean NOT NULL DEFAULT false
);
CREATE INDEX job_open ON podium.job (team, provider) WHERE NOT is_over;

CREATE TABLE podium.fleet_limit (
    kind text NOT NULL CHECK (kind IN ('team', 'provider')),
    name text NOT NULL,
    max_running integer NOT NULL CHECK (max_running >= 0),
    PRIMARY KEY (kind, name)
);

CREATE TABLE podium.provider_rate (
    provider text PRIMARY KEY,
    per_second double precision NOT NULL CHECK (per_second > 0),
    burst double precision NOT NULL CHECK (burst >= 1),
    tokens double precision NOT NULL,
    updated timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE podium.refusal (
    login text NOT NULL,
    act text NOT NULL,
    run text NOT NULL,
    reason text NOT NULL,
    first timestamptz NOT NULL DEFAULT clock_timestamp(),
    last timestamptz NOT NULL DEFAULT clock_timestamp(),
    count bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (login, act, run, reason)
);

ALTER TABLE podium.owner ADD COLUMN login text NOT NULL DEFAULT session_user;

CREATE VIEW podium.running_job AS
    SELECT job.run, job.team, job.provider, owner.login
    FROM podium.job
    JOIN podium.run ON run.id = job.run
    JOIN podium.owner ON owner.id = run.owner
    WHERE NOT job.is_over AND owner.until > extract(epoch FROM clock_timestamp());

CREATE VIEW podium.full_limit AS
    SELECT kind, name FROM podium.fleet_limit
    WHERE max_running <= (
        SELECT count(*) FROM podium.running_job
        WHERE CASE kind WHEN 'team' THEN team ELSE provider END = name
    );

CREATE FUNCTION podium.close_job() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    UPDATE podium.job SET is_over = true WHERE run = NEW.run;
    RETURN NULL;
END $$;
CREATE TRIGGER run_ended AFTER INSERT ON podium.entry
    FOR EACH ROW WHEN (NEW.kind = 'run_ended') EXECUTE FUNCTION podium.close_job();

-- Records a refusal and returns its reason. Only the other functions call it.
CREATE FUNCTION podium.refuse(what text, about text, why text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    INSERT INTO podium.refusal AS known (login, act, run, reason)
    VALUES (session_user, what, left(coalesce(about, ''), 64), why)
    ON CONFLICT (login, act, run, reason) DO UPDATE SET last = clock_timestamp(), count = known.count + 1;
    RETURN why;
END $$;

-- Lets hosts read all tables, call the functions for hosts, and use the queue. Does nothing while there are no hosts,
-- so that a store without a fleet needs no right to create roles. To be called again after tables were added.
CREATE FUNCTION podium.grant_to_hosts() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'podium_host') THEN
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA podium TO podium_host;
    GRANT SELECT ON ALL TABLES IN SCHEMA podium TO podium_host;
    GRANT EXECUTE ON FUNCTION
        podium.register_host, podium.heartbeat_host, podium.renew_owner_as_host, podium.claim_run_as_host,
        podium.release_run_as_host, podium.begin_run_as_host, podium.add_job_as_host, podium.append_entries_as_host,
        podium.post_mail_as_host, podium.take_provider_tokens
        TO podium_host;
    IF to_regclass('podium_queue.job') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA podium_queue TO podium_host;
        GRANT SELECT, INSERT, UPDATE, DELETE ON podium_queue.job, podium_queue.job_log TO podium_host;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA podium_queue TO podium_host;
    END IF;
END $$;

-- Creates the login of a host. Only the owner of the tables calls it, and must be allowed to create roles.
CREATE FUNCTION podium.create_host_login(host_name text, password text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    new_login text := 'podium_host_' || host_name;
BEGIN
    IF host_name !~ '^[A-Za-z0-9][A-Za-z0-9_-]{0,49}$' THEN
        RAISE EXCEPTION 'host name % is not valid: use at most 50 letters, digits, dashes and underscores', host_name;
    END IF;
    INSERT INTO podium.host (name, login) VALUES (host_name, new_login);
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'podium_host') THEN
        CREATE ROLE podium_host NOLOGIN;
    END IF;
    EXECUTE format('CREATE ROLE %I LOGIN PASSWORD %L IN ROLE podium_host', new_login, password);
    PERFORM podium.grant_to_hosts();
    RETURN new_login;
END $$;

-- Hosts

CREATE FUNCTION podium.register_host(
    labels text[], slots integer, version text, store_version integer, clock timestamptz
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    UPDATE podium.host SET
        labels = register_host.labels, slots = register_host.slots, version = register_host.version,
        store_version = register_host.store_version, state = 'active', is_drain_asked = false,
        seen = clock_timestamp(), clock_offset = extract(epoch FROM clock - clock_timestamp())
    WHERE login = session_user;
    RETURN CASE WHEN NOT FOUND THEN podium.refuse('register', '', 'this login belongs to no host') END;
END $$;

-- Says that the host is alive, and returns whether it was asked to drain.
CREATE FUNCTION podium.heartbeat_host(new_state text, clock timestamptz) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    UPDATE podium.host SET
        state = new_state, seen = clock_timestamp(), clock_offset = extract(epoch FROM clock - clock_timestamp())
    WHERE login = session_user
    RETURNING is_drain_asked
$$;

-- Leases

-- Starts or extends the lease of a process of this host.
CREATE FUNCTION podium.renew_owner_as_host(
    owner_id text, host text, boot text, pid integer, born text, lease_seconds double precision
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    INSERT INTO podium.owner (id, host, boot, pid, born, until, login)
    VALUES (owner_id, host, boot, pid, born, extract(epoch FROM clock_timestamp()) + lease_seconds, session_user)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until WHERE owner.login = session_user;
    RETURN CASE WHEN NOT FOUND THEN podium.refuse('renew', '', 'the process belongs to another login') END;
END $$;

-- Takes over a run for a process of this host, and returns the new epoch or the reason for a refusal.
CREATE FUNCTION podium.claim_run_as_host(run_id text, owner_id text, OUT epoch bigint, OUT refusal text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    this_host podium.host;
    wanted podium.job;
    holder podium.owner;
BEGIN
    SELECT * INTO this_host FROM podium.host WHERE host.login = session_user;
    IF NOT EXISTS (
        SELECT FROM podium.owner
        WHERE id = owner_id AND login = session_user AND until > extract(epoch FROM clock_timestamp())
    ) OR this_host.id IS NULL THEN
        refusal := podium.refuse('claim', run_id, 'forged');
        RETURN;
    END IF;
    -- Nobody else can claim this run until the transaction ends.
    PERFORM FROM podium.run WHERE id = run_id FOR UPDATE;
    SELECT * INTO wanted FROM podium.job WHERE job.run = run_id AND NOT is_over;
    IF wanted.run IS NULL THEN
        refusal := 'over';
        RETURN;
    END IF;
    IF wanted.host NOT IN ('', this_host.name) OR NOT wanted.labels <@ this_host.labels
        OR wanted.store_version > this_host.store_version THEN
        refusal := podium.refuse('claim', run_id, 'unfit');
        RETURN;
    END IF;
    SELECT owner.* INTO holder FROM podium.run JOIN podium.owner ON owner.id = run.owner WHERE run.id = run_id;
    IF holder.id <> owner_id AND holder.until > extract(epoch FROM clock_timestamp()) THEN
        refusal := podium.refuse('claim', run_id, 'held');
        RETURN;
    END IF;
    -- Of two claims that count towards the same limit, the second waits for the first.
    PERFORM FROM podium.fleet_limit
        WHERE (kind, name) IN (('team', wanted.team), ('provider', wanted.provider)) ORDER BY kind FOR UPDATE;
    IF EXISTS (
        SELECT FROM podium.full_limit WHERE (kind, name) IN (('team', wanted.team), ('provider', wanted.provider))
    ) AND holder.id IS DISTINCT FROM owner_id THEN
        refusal := 'full';
        RETURN;
    END IF;
    UPDATE podium.run SET owner = owner_id, epoch = run.epoch + 1 WHERE id = run_id RETURNING run.epoch INTO epoch;
END $$;

CREATE FUNCTION podium.release_run_as_host(run_id text, owner_id text, held_epoch bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    UPDATE podium.run SET owner = NULL
    WHERE id = run_id AND owner = owner_id AND epoch = held_epoch
        AND EXISTS (SELECT FROM podium.owner WHERE id = owner_id AND login = session_user);
    RETURN FOUND;
END $$;

-- Creates a run that belongs to a process of this host: a worker that a run on this host delegates to.
CREATE FUNCTION podium.begin_run_as_host(run_id text, owner_id text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    INSERT INTO podium.run (id, created, owner, epoch)
    SELECT run_id, extract(epoch FROM clock_timestamp()), owner_id, 1
    FROM podium.owner WHERE id = owner_id AND login = session_user
    ON CONFLICT (id) DO NOTHING;
    RETURN CASE WHEN NOT FOUND THEN podium.refuse('begin', run_id, 'forged') END;
END $$;

-- Whether a process of this login owns a run.
CREATE FUNCTION podium.is_own_run(run_id text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM podium.run JOIN podium.owner ON owner.id = run.owner
        WHERE run.id = run_id AND owner.login = session_user
    )
$$;

-- Says what a run needs, for a run that this host has created on behalf of another run of its own.
CREATE FUNCTION podium.add_job_as_host(
    run_id text, parent text, labels text[], host text, priority integer, team text, provider text, repository text,
    store_version integer
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF NOT podium.is_own_run(run_id) OR NOT podium.is_own_run(parent) THEN
        RETURN podium.refuse('add job', run_id, 'forged');
    END IF;
    INSERT INTO podium.job (run, parent, labels, host, priority, team, provider, repository, store_version)
    VALUES (run_id, parent, labels, host, priority, team, provider, repository, store_version)
    ON CONFLICT (run) DO NOTHING;
    RETURN NULL;
END $$;

-- The timeline and the mailbox

-- Appends entries to runs that a process of this host owns, all or none. mails has the ids of the messages that the
-- entries consume, or 0.
CREATE FUNCTION podium.append_entries_as_host(
    owner_id text, held_runs text[], held_epochs bigint[],
    runs text[], seqs bigint[], kinds text[], keys text[], lines bytea[], hashes bytea[], mails bigint[]
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    refused text;
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
    INSERT INTO podium.entry (run, seq, epoch, kind, key, line, hash)
    SELECT new.run, new.seq, held.epoch, new.kind, new.key, new.line, new.hash
    FROM unnest(runs, seqs, kinds, keys, lines, hashes) AS new (run, seq, kind, key, line, hash)
    JOIN unnest(held_runs, held_epochs) AS held (id, epoch) ON held.id = new.run;
    UPDATE podium.mail SET taken = new.seq
    FROM unnest(runs, seqs, mails) AS new (run, seq, mail)
    WHERE mail.id = new.mail AND mail.run = new.run;
    RETURN NULL;
END $$;

-- Whether a key occurs twice in an object. Programs differ in which of the two counts.
CREATE FUNCTION podium.has_repeated_key(object json) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT EXISTS (SELECT FROM json_object_keys(object) AS name GROUP BY name HAVING count(*) > 1)
$$;

-- Whether an entry is not what it claims to be, or is a decision that nobody posted to the run's mailbox. A run can
-- deny a request without an answer. Whatever allows something comes from a person or a commander, through the mailbox.
CREATE FUNCTION podium.is_forged(run_id text, seq bigint, kind text, entry json, mail_id bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT entry->>'run' IS DISTINCT FROM run_id
        OR (entry->>'seq')::bigint IS DISTINCT FROM seq
        OR entry->'event'->>'type' IS DISTINCT FROM kind
        OR podium.has_repeated_key(entry)
        OR podium.has_repeated_key(entry->'event')
        OR (
            kind IN ('permission_answered', 'question_answered', 'budget_changed', 'member_changed')
            AND NOT (kind = 'permission_answered' AND entry->'event'->>'decision' = 'deny')
            AND NOT EXISTS (
                SELECT FROM (
                    SELECT convert_from(line, 'UTF8')::json AS posted FROM podium.mail
                    WHERE id = mail_id AND run = run_id
                ) AS message
                WHERE posted->>'type' = kind
                    AND posted->>'id' IS NOT DISTINCT FROM entry->'event'->>'id'
                    AND posted->>'decision' IS NOT DISTINCT FROM entry->'event'->>'decision'
                    AND posted->>'rule' IS NOT DISTINCT FROM entry->'event'->>'rule'
            )
        )
$$;

-- Whether one of two runs delegated to the other, or both work for the same run.
CREATE FUNCTION podium.is_related(one text, other text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT EXISTS (SELECT FROM podium.job WHERE (run, parent) IN ((one, other), (other, one)))
        OR EXISTS (
            SELECT FROM podium.job AS first JOIN podium.job AS second USING (parent)
            WHERE first.run = one AND second.run = other AND parent <> ''
        )
$$;

-- Posts a message to a run. A host can stop its own runs and their workers, and pass on what its agents say to the
-- other members of their teams. Answers and what a person says come from elsewhere.
CREATE FUNCTION podium.post_mail_as_host(run_id text, message_ref text, message bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    posted json := convert_from(message, 'UTF8')::json;
    is_allowed boolean := CASE posted->>'type'
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
    IF NOT is_allowed OR podium.has_repeated_key(posted) THEN
        RETURN podium.refuse('post', run_id, 'forged');
    END IF;
    INSERT INTO podium.mail (run, ref, at, line)
    VALUES (run_id, message_ref, extract(epoch FROM clock_timestamp()), message)
    ON CONFLICT (run, ref) DO NOTHING;
    RETURN NULL;
END $$;

-- Reserves calls to a provider, and returns after how many seconds they may be made. Tokens below zero are reserved.
CREATE FUNCTION podium.take_provider_tokens(wanted text, amount double precision) RETURNS double precision
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    UPDATE podium.provider_rate SET
        tokens = least(burst, tokens + greatest(0, extract(epoch FROM clock_timestamp() - updated)) * per_second)
            - least(burst, greatest(0, amount)),
        updated = clock_timestamp()
    WHERE provider = wanted
    RETURNING greatest(0, -tokens / per_second)
$$;

REVOKE ALL ON FUNCTION
    podium.close_job, podium.refuse, podium.grant_to_hosts, podium.create_host_login, podium.register_host,
    podium.heartbeat_host, podium.renew_owner_as_host, podium.claim_run_as_host, podium.release_run_as_host,
    podium.begin_run_as_host, podium.is_own_run, podium.is_related, podium.add_job_as_host,
    podium.append_entries_as_host, podium.is_forged, podium.has_repeated_key, podium.post_mail_as_host,
    podium.take_provider_tokens
    FROM PUBLIC;
