-- The tables of the store, as in SQLite. Times are seconds since 1970, flags are 0 or 1.

CREATE FUNCTION clock_seconds() RETURNS double precision LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT extract(epoch FROM clock_timestamp())::double precision $$;

CREATE FUNCTION instr(bytea, bytea) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT position($2 IN $1) $$;

CREATE TABLE owner (
    id text PRIMARY KEY,
    host text NOT NULL,
    boot text NOT NULL,
    pid integer NOT NULL,
    born text NOT NULL,
    until double precision NOT NULL
);

CREATE TABLE run (
    id text PRIMARY KEY,
    created double precision NOT NULL,
    owner text,
    epoch bigint NOT NULL
);

-- `tx` and `number` order the entries of all runs: by transaction, then as they were written in it.
CREATE TABLE entry (
    run text NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    line bytea NOT NULL,
    hash bytea NOT NULL,
    tx bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    number bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (run, seq)
);
ALTER TABLE entry ALTER COLUMN line SET STORAGE EXTERNAL;
CREATE INDEX entry_order ON entry (tx, number);
CREATE INDEX entry_decision ON entry (tx, number)
    WHERE kind = 'decision_proposed' OR kind = 'vote_closed' OR kind = 'decision_committed';

CREATE FUNCTION refuse_entry_change() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'entries never change'; END $$;
CREATE TRIGGER entry_stays BEFORE UPDATE ON entry FOR EACH ROW EXECUTE FUNCTION refuse_entry_change();

CREATE TABLE mail (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text NOT NULL,
    ref text NOT NULL,
    at double precision NOT NULL,
    line bytea NOT NULL,
    taken bigint,
    UNIQUE (run, ref)
);
CREATE INDEX mail_waiting ON mail (run) WHERE taken IS NULL;

CREATE TABLE run_group (
    id bigint PRIMARY KEY,
    kind text NOT NULL,
    repo text NOT NULL,
    team text NOT NULL,
    name text NOT NULL,
    position bigint,
    pinned integer NOT NULL,
    archived integer NOT NULL,
    UNIQUE (kind, repo, team)
);
CREATE TABLE last_group (id bigint NOT NULL);
INSERT INTO last_group VALUES (0);
CREATE FUNCTION record_group_id() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE last_group SET id = NEW.id WHERE id < NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER group_id_counts AFTER INSERT ON run_group FOR EACH ROW EXECUTE FUNCTION record_group_id();
INSERT INTO run_group (id, kind, repo, team, name, pinned, archived) VALUES (1, 'default', '', '', 'default', 0, 0);

CREATE FUNCTION refuse_default_group_delete() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'the default group stays'; END $$;
CREATE TRIGGER default_group_stays BEFORE DELETE ON run_group FOR EACH ROW WHEN (OLD.kind = 'default')
    EXECUTE FUNCTION refuse_default_group_delete();

CREATE TABLE placement (
    run text PRIMARY KEY,
    place bigint,
    name text NOT NULL,
    position bigint,
    pinned integer NOT NULL,
    archived integer NOT NULL,
    manual integer NOT NULL
);

-- The worktrees of all machines. A connection sees those of its own machine, through the view `worktree`.
CREATE TABLE worktree_of_host (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host text NOT NULL DEFAULT current_setting('podium.host'),
    path text NOT NULL,
    repository text NOT NULL,
    branch text NOT NULL,
    base text NOT NULL,
    run text NOT NULL,
    git_dir text NOT NULL,
    is_new_branch integer NOT NULL,
    state text NOT NULL,
    created double precision NOT NULL,
    size bigint NOT NULL
);
CREATE UNIQUE INDEX worktree_path ON worktree_of_host (host, path) WHERE state != 'gone';
CREATE UNIQUE INDEX worktree_branch ON worktree_of_host (host, repository, branch) WHERE state != 'gone';
CREATE VIEW worktree AS SELECT * FROM worktree_of_host WHERE host = current_setting('podium.host');

CREATE TABLE worker (
    run text PRIMARY KEY,
    root text NOT NULL,
    branch text NOT NULL,
    is_open integer NOT NULL
);
CREATE INDEX worker_branch ON worker (root, branch);

CREATE TABLE attachment (
    run text NOT NULL,
    message text NOT NULL,
    digest text NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, message, digest)
);

CREATE TABLE artifact (
    digest text PRIMARY KEY,
    data bytea NOT NULL
);

CREATE TABLE command_key (
    key text PRIMARY KEY,
    digest text NOT NULL,
    id text NOT NULL,
    at double precision NOT NULL,
    reply bytea
);

CREATE TABLE indexed_run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text NOT NULL UNIQUE,
    seq bigint NOT NULL,
    shared bigint NOT NULL
);
CREATE TABLE indexed_entry (
    run bigint NOT NULL,
    seq bigint NOT NULL,
    at double precision NOT NULL,
    kind text NOT NULL,
    agent text NOT NULL,
    step text NOT NULL,
    PRIMARY KEY (run, seq)
);
CREATE INDEX indexed_entry_at ON indexed_entry (at);
CREATE INDEX indexed_entry_kind ON indexed_entry (kind, at);
CREATE INDEX indexed_entry_agent ON indexed_entry (agent, at);
CREATE INDEX indexed_entry_step ON indexed_entry (step, at) WHERE step != '';

-- Lock the leases of a batch's runs until the transaction ends, so that no process takes one of them over meanwhile.
-- Raise PD001 with the name of a run whose epoch has changed.
CREATE FUNCTION require_leases(runs text[], epochs bigint[]) RETURNS void LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
DECLARE
    lost text;
BEGIN
    PERFORM 1 FROM run JOIN unnest(runs, epochs) AS held(id, epoch) USING (id, epoch) ORDER BY run.id FOR SHARE OF run;
    SELECT held.id INTO lost FROM unnest(runs, epochs) AS held(id, epoch)
        LEFT JOIN run USING (id, epoch) WHERE run.id IS NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PD001', MESSAGE = lost;
    END IF;
END $$;

-- Append entries whose runs have these leases, in the current transaction.
CREATE FUNCTION append_entries(
    held_runs text[], held_epochs bigint[],
    runs text[], seqs bigint[], epochs bigint[], kinds text[], keys text[], lines bytea[], hashes bytea[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM require_leases(held_runs, held_epochs);
    INSERT INTO entry (run, seq, epoch, kind, key, line, hash)
        SELECT * FROM unnest(runs, seqs, epochs, kinds, keys, lines, hashes);
END $$;
