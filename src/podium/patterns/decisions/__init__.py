"""Decisions: members vote on a proposal, and a lead or a person decides if the vote is inconclusive."""
