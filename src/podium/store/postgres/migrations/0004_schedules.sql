-- Requests that are sent to agents at certain times.

CREATE TABLE podium.schedule (
    id text PRIMARY KEY,
    cron text NOT NULL,
    zone text NOT NULL,
    agent text NOT NULL,
    request text NOT NULL,
    root text NOT NULL,
    host text NOT NULL,
    created double precision NOT NULL,
    is_paused integer NOT NULL,
    next_at double precision NOT NULL,
    last_at double precision NOT NULL,
    last_run text NOT NULL,
    missed bigint NOT NULL,
    missed_at double precision NOT NULL,
    error text NOT NULL
);

SELECT podium.grant_to_hosts();
