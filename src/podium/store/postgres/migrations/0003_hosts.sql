-- What the processes of a host write besides entries, and the worktrees of hosts.

-- A login sees and changes only its own worktrees: a host must not make another machine remove folders.
ALTER TABLE podium.worktree_of_host ADD COLUMN login text NOT NULL DEFAULT session_user;
DROP INDEX podium.worktree_path;
DROP INDEX podium.worktree_branch;
CREATE UNIQUE INDEX worktree_path ON podium.worktree_of_host (host, login, path) WHERE state != 'gone';
CREATE UNIQUE INDEX worktree_branch ON podium.worktree_of_host (host, login, repository, branch) WHERE state != 'gone';
CREATE OR REPLACE VIEW podium.worktree AS
    SELECT * FROM podium.worktree_of_host WHERE host = current_setting('podium.host') AND login = session_user
    WITH CHECK OPTION;

-- Adds a worker to the index: a run that this host has created.
CREATE FUNCTION podium.add_worker_as_host(run_id text, root_path text, branch_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF NOT podium.is_own_run(run_id) THEN
        RETURN podium.refuse('add worker', run_id, 'forged');
    END IF;
    INSERT INTO podium.worker (run, root, branch, is_open) VALUES (run_id, root_path, branch_name, 1);
    RETURN NULL;
END $$;

-- Marks a worker as closed whose run has ended.
CREATE FUNCTION podium.close_worker_as_host(run_id text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
    UPDATE podium.worker SET is_open = 0
    WHERE run = run_id AND EXISTS (SELECT FROM podium.entry WHERE entry.run = run_id AND kind = 'run_ended');
    SELECT NULL::text;
$$;

CREATE FUNCTION podium.store_artifact_as_host(content_digest text, content bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF encode(sha256(content), 'hex') <> content_digest THEN
        RETURN podium.refuse('store artifact', '', 'forged');
    END IF;
    INSERT INTO podium.artifact (digest, data) VALUES (content_digest, content) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

-- Deletes the attachments of a message that no agent of this host's run received.
CREATE FUNCTION podium.drop_attachments_as_host(run_id text, message_id text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, podium, pg_temp AS $$
BEGIN
    IF NOT podium.is_own_run(run_id) THEN
        RETURN podium.refuse('drop attachments', run_id, 'forged');
    END IF;
    DELETE FROM podium.attachment WHERE run = run_id AND message = message_id;
    RETURN NULL;
END $$;

-- Removes a host and its login. Only the owner of the tables calls it. Returns whether there was such a host.
CREATE FUNCTION podium.drop_host_login(host_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, podium, pg_temp AS $$
DECLARE
    old_login text;
BEGIN
    DELETE FROM podium.host WHERE name = host_name RETURNING login INTO old_login;
    IF old_login IS NULL THEN
        RETURN false;
    END IF;
    -- Its leases end now, so that other hosts take over its runs at once.
    UPDATE podium.owner SET until = 0 WHERE login = old_login;
    EXECUTE format('DROP ROLE %I', old_login);
    RETURN true;
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
        podium.store_artifact_as_host, podium.drop_attachments_as_host
        TO podium_host;
    IF to_regclass('podium_queue.job') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA podium_queue TO podium_host;
        GRANT SELECT, INSERT, UPDATE, DELETE ON podium_queue.job, podium_queue.job_log TO podium_host;
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA podium_queue TO podium_host;
    END IF;
END $$;

REVOKE ALL ON FUNCTION
    podium.add_worker_as_host, podium.close_worker_as_host, podium.store_artifact_as_host,
    podium.drop_attachments_as_host, podium.drop_host_login
    FROM PUBLIC;
SELECT podium.grant_to_hosts();
