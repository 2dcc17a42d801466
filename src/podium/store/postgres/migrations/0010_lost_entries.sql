-- Notice entries that the server lost: after a failover to a standby that lagged, or when a backup was restored.
--
-- A process that writes to a run must continue the timeline that the server has. And each run has the identity of the
-- server that wrote it, so that a resumed run can tell whether the server may have lost its last entries.

-- The server's system identifier, its timeline, which changes when a standby is promoted or a backup is recovered, and
-- the database. Empty on a standby.
CREATE FUNCTION podium.read_server_identity() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, podium, pg_temp AS $$
    SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE concat_ws(
        '/',
        CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE')
            THEN (SELECT system_identifier FROM pg_control_system()) END,
        left(pg_walfile_name(pg_current_wal_lsn()), 8),
        (SELECT oid FROM pg_database WHERE datname = current_database())
    ) END
$$;

-- Empty for a run that is older than this column. After a person accepted a loss: `accepted:` and the identity.
ALTER TABLE podium.run ADD COLUMN server text NOT NULL DEFAULT '';
ALTER TABLE podium.run ALTER COLUMN server SET DEFAULT podium.read_server_identity();

-- Returns a run whose first new entry does not follow the last one that the server has, or null. The first of a run's
-- entries follows nothing, and the primary key makes sure that there is only one.
CREATE FUNCTION podium.find_gap(runs text[], seqs bigint[], lines bytea[], hashes bytea[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    found text;
BEGIN
    SELECT new.run INTO found FROM (
        SELECT DISTINCT ON (given.run) given.run, given.seq, given.line, given.hash
        FROM unnest(runs, seqs, lines, hashes) AS given (run, seq, line, hash) ORDER BY given.run, given.seq
    ) AS new
    LEFT JOIN podium.entry AS before ON before.run = new.run AND before.seq = new.seq - 1
    WHERE new.seq > 1 AND new.hash IS DISTINCT FROM sha256(before.hash || new.line) LIMIT 1;
    RETURN found;
END $$;

-- Records that the server has all earlier entries of these runs, because their new entries continue them. An entry with
-- which a process only ends or pauses a run does not count: for that, it need not have checked the run.
CREATE FUNCTION podium.record_server(runs text[], kinds text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    identity text := podium.read_server_identity();
BEGIN
    UPDATE podium.run SET server = identity
    WHERE server <> identity AND id IN (
        SELECT given.run FROM unnest(runs, kinds) AS given (run, kind)
        WHERE kind NOT IN ('run_paused', 'run_ended', 'pause_asked', 'stop_asked', 'noticed')
    );
END $$;

-- As before, and the entries continue the timelines. Raises PD002 with the name of a run whose entries do not.
CREATE OR REPLACE FUNCTION podium.append_entries(
    held_runs text[], held_epochs bigint[],
    runs text[], seqs bigint[], epochs bigint[], kinds text[], keys text[], lines bytea[], hashes bytea[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    lost text;
BEGIN
    PERFORM podium.require_leases(held_runs, held_epochs);
    lost := podium.find_gap(runs, seqs, lines, hashes);
    IF lost IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PD002', MESSAGE = lost;
    END IF;
    PERFORM podium.record_server(runs, kinds);
    INSERT INTO podium.entry (run, seq, epoch, kind, key, line, hash)
        SELECT * FROM unnest(runs, seqs, epochs, kinds, keys, lines, hashes);
END $$;

-- As before, and entries that the server does not have are called lost, not forged.
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
    refused := podium.find_gap(runs, seqs, lines, hashes);
    IF refused IS NOT NULL THEN
        RETURN podium.refuse('append', refused, 'lost') || ' ' || refused;
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
    PERFORM podium.record_server(runs, kinds);
    INSERT INTO podium.entry (run, seq, epoch, kind, key, line, hash)
    SELECT new.run, new.seq, held.epoch, new.kind, new.key, new.line, new.hash
    FROM unnest(runs, seqs, kinds, keys, lines, hashes) AS new (run, seq, kind, key, line, hash)
    JOIN unnest(held_runs, held_epochs) AS held (id, epoch) ON held.id = new.run;
    UPDATE podium.mail SET taken = new.seq
    FROM unnest(runs, seqs, mails) AS new (run, seq, mail)
    WHERE mail.id = new.mail AND mail.run = new.run;
    RETURN NULL;
END $$;
