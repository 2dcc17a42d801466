-- Issues that were taken from a source, such as a forge. No issue is taken twice.

CREATE TABLE podium.issue_claim (
    source text NOT NULL,
    issue text NOT NULL,
    token text NOT NULL,
    claimed double precision NOT NULL,
    root text NOT NULL,
    title text NOT NULL,
    body text NOT NULL,
    author text NOT NULL,
    url text NOT NULL,
    state text NOT NULL,
    agent text NOT NULL,
    branch text NOT NULL,
    note text NOT NULL,
    comment text NOT NULL,
    comment_at double precision NOT NULL,
    comment_tries integer NOT NULL,
    comment_url text NOT NULL,
    PRIMARY KEY (source, issue)
);
CREATE INDEX issue_claim_open ON podium.issue_claim (source, claimed)
WHERE state = 'claimed' OR state = 'triage' OR state = 'work' OR comment = 'wanted' OR comment = 'posting';

SELECT podium.grant_to_hosts();
