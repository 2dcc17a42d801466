-- A run that waits for its workers must not keep them from running, so it counts towards no limit.

CREATE INDEX job_parent ON podium.job (parent) WHERE NOT is_over;

CREATE VIEW podium.waiting_run AS SELECT DISTINCT parent AS run FROM podium.job WHERE NOT is_over AND parent <> '';

CREATE OR REPLACE VIEW podium.full_limit AS
    SELECT kind, name FROM podium.fleet_limit
    WHERE max_running <= (
        SELECT count(*) FROM podium.running_job
        WHERE CASE kind WHEN 'team' THEN team ELSE provider END = name
            AND run NOT IN (SELECT waiting_run.run FROM podium.waiting_run)
    );

SELECT podium.grant_to_hosts();
