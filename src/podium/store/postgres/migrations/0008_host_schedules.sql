-- Schedules whose runs a host starts.
--
-- A schedule belongs to a machine, and the processes on that machine know a secret whose digest is here. So a host can
-- record starts only for the schedules of its own machine. Hosts cannot write to this table.

CREATE TABLE podium.schedule_key (
    machine text PRIMARY KEY,
    digest text NOT NULL
);

-- Records that the run for a schedule's next time was started, or could not be, or that times were missed.
CREATE FUNCTION podium.record_schedule_as_host(
    schedule_id text, secret text, old_next double precision, new_next double precision, new_last double precision,
    new_run text, new_error text, new_missed bigint, new_missed_at double precision
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM podium.schedule JOIN podium.schedule_key ON schedule_key.machine = schedule.host
        WHERE schedule.id = schedule_id AND digest = encode(sha256(convert_to(secret, 'UTF8')), 'hex')
    ) THEN
        RETURN podium.refuse('record schedule', '', 'forged');
    END IF;
    UPDATE podium.schedule SET
        next_at = new_next, last_at = new_last, last_run = new_run, error = new_error, missed = new_missed,
        missed_at = new_missed_at
    WHERE id = schedule_id AND next_at = old_next;
    RETURN NULL;
END $$;

-- As before, and a host can also say what a run needs that nobody delegated, if only the host itself can take it.
CREATE OR REPLACE FUNCTION podium.add_job_as_host(
    run_id text, parent text, labels text[], host text, priority integer, team text, provider text, repository text,
    store_version integer
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF NOT podium.is_own_run(run_id) OR NOT (
        podium.is_own_run(parent)
        OR (parent = '' AND EXISTS (
            SELECT FROM podium.host AS known WHERE known.login = session_user AND known.name = add_job_as_host.host
        ))
    ) THEN
        RETURN podium.refuse('add job', run_id, 'forged');
    END IF;
    INSERT INTO podium.job (run, parent, labels, host, priority, team, provider, repository, store_version)
    VALUES (run_id, parent, labels, host, priority, team, provider, repository, store_version)
    ON CONFLICT (run) DO NOTHING;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION podium.grant_to_hosts() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'podium_host') THEN
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA podium TO podium_host;
    GRANT SELECT ON ALL TABLES IN SCHEMA podium TO podium_host;
    GRANT INSERT, UPDATE ON podium.worktree TO podium_host;
    GRANT EXECUTE ON FUNCTION
        podium.register_host, podium.heartbeat_host, podium.renew_owner_as_host, podium.claim_run_as_host,
        podium.release_run_as_host, podium.begin_run_as_host, podium.add_job_as_host, podium.append_entries_as_host,
        podium.post_mail_as_host, podium.take_provider_tokens, podium.add_worker_as_host, podium.close_worker_as_host,
        podium.store_artifact_as_host, podium.drop_attachments_as_host, podium.record_schedule_as_host
        TO podium_host;
    IF to_regclass('podium_queue.job') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA podium_queue TO podium_host;
        GRANT SELECT, INSERT, UPDATE, DELETE ON podium_queue.job, podium_queue.job_log TO podium_host;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA podium_queue TO podium_host;
    END IF;
END $$;

REVOKE ALL ON FUNCTION podium.record_schedule_as_host FROM PUBLIC;
SELECT podium.grant_to_hosts();
