"""A person for tests in which it does not matter who acts."""

from podium.values.actor import Actor

ADA = Actor(name="ada", channel="api")
