"""The SQL statements that a process executes while it works on runs, except those that append entries.

Each statement is a constant. A process on a fleet host does not execute it, but uses it as a key to look up the
database function to call.
"""

RENEW_OWNER = (
    "INSERT INTO owner (id, host, boot, pid, born, until) VALUES (?, ?, ?, ?, ?, clock_seconds() + ?)"
    " ON CONFLICT (id) DO UPDATE SET until = excluded.until"
)
DELETE_OLD_OWNERS = "DELETE FROM owner WHERE until < clock_seconds() - ?"
DELETE_OWNER = "DELETE FROM owner WHERE id = ?"
INSERT_RUN = "INSERT INTO run (id, created, owner, epoch) VALUES (?, ?, ?, 1)"
TAKE_OVER_RUN = "UPDATE run SET owner = ?, epoch = epoch + 1 WHERE id = ? RETURNING epoch"
RELEASE_RUN = "UPDATE run SET owner = NULL WHERE id = ? AND epoch = ?"
INSERT_MAIL = "INSERT INTO mail (run, ref, at, line) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
TAKE_MAIL = "UPDATE mail SET taken = ? WHERE id = ?"
INSERT_WORKER = "INSERT INTO worker (run, root, branch, is_open) VALUES (?, ?, ?, 1)"
INSERT_WORKER_AND_JOB = (
    f"WITH added AS ({INSERT_WORKER}) INSERT INTO job"
    " (run, parent, labels, host, priority, team, provider, repository, store_version)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
CLOSE_WORKER = "UPDATE worker SET is_open = 0 WHERE run = ?"
INSERT_ARTIFACT = "INSERT INTO artifact (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING"
DELETE_ATTACHMENTS = "DELETE FROM attachment WHERE run = ? AND message = ?"
