"""Run a team in discuss mode: members talk in rounds on a shared channel, and then the lead answers.

The channel contains broadcasts, votes, and the replies of members that send neither. Each member keeps its own
conversation from round to round and receives each message once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from ..core.operation import Operation
from ..values.errors import AgentFailed
from ..values.event import Broadcast, DiscussionEnded, Noticed, RoundEnded, ToolUse, Voted
from ..values.request import Answer, Part, Request, quote_lines
from ..values.team_modes import DiscussOptions
from .answer_check import require_answer
from .discussion_messages import (
    DECIDER_TOOLS,
    MODERATOR_TOOLS,
    TOOL_NAMES,
    find_spoken_text,
    is_argument,
    make_member_broadcast_tool,
    make_member_vote_tool,
    repeats_part,
)
from .member_tasks import add_shared_context, get_team_options, make_team_failure, resolve_members, run_members
from .stall import StallDetector
from .team_prompts import TASK_HEADING, render_prompt
from .verdict import neutralise
from .worker_run import runs_in_worker

EndReason = Literal["consensus", "max_rounds", "coordinator", "stalled", "nobody_left", "budget", "stopped"]
FALLBACK = "[the coordinator gave no answer; the discussion follows]"
CHARACTERS_A_TOKEN = 4


async def run_discuss(op: Operation, request: Request) -> Answer:
    """Return the coordinator's answer. If the coordinator fails, return the messages with a notice.

    Raise AgentFailed if a budget is used up, or if the coordinator fails and there are no messages.
    """
    return await Discussion(op, request).run()


class Discussion:
    """A running discussion, with callbacks for the program that runs it.

    `on_broadcast` and `on_vote` are called with each broadcast and vote, and `should_continue` after each round.
    `inject` sends a message to all members before their next round.
    """

    def __init__(self, op: Operation, request: Request) -> None:
        self.on_broadcast: Callable[[Broadcast], object] = _ignore_event
        self.on_vote: Callable[[Voted], object] = _ignore_event
        self.should_continue: Callable[[Discussion], bool] = _always_continue
        self.channel = Channel()
        self.rounds = 0
        self.parts: tuple[Part, ...] = ()
        self._op = op
        self._request = request
        self._own = get_team_options(op, DiscussOptions)
        self._members = resolve_members(op)
        name = op.agent.name
        self._coordinator = f"{name} (coordinator)" if name in self._members else name
        """The lead's name in its role as coordinator. It differs from the agent's name if the lead is also a member."""
        self._stages: dict[str, Operation] = {}
        self._injected: list[tuple[str, str]] = []
        self._injected_characters = 0
        self._conclusion = ""
        self._missed: list[str] = []
        """Which members missed which rounds, and why. The members do not see this."""
        self._stall = StallDetector()
        self._last_votes: dict[str, bool] = {}

    def inject(self, text: str, *, author: str = "the person") -> None:
        """Send a message to all members before their next round."""
        self._injected.append((author, text))

    async def run(self) -> Answer:
        """Run rounds until one of the conditions for ending the discussion is met, and return the answer."""
        ended: EndReason | None = None
        while ended is None:
            self.rounds += 1
            await self._run_round()
            ended = await self._find_end_reason()
        broadcasts = len(self.channel.list_broadcasts())
        tokens = self._injected_characters // CHARACTERS_A_TOKEN
        self._op.scope.record(
            DiscussionEnded(by=ended, rounds=self.rounds, broadcasts=broadcasts, injected_tokens=tokens)
        )
        if ended == "budget":
            raise self._op.make_error("budget", "the discussion's budget is used up", so_far=self._format_fallback())
        if ended == "nobody_left":
            raise self._make_nobody_failure()
        return Answer(text=await self._write_conclusion(ended), parts=self.parts)

    async def _find_end_reason(self) -> EndReason | None:
        """Return the reason to end the discussion after this round, or None to continue."""
        own = self._own
        has_voted = {vote.author for vote in self.channel.list_votes(self.rounds)}
        if not any(part.failure is None or part.agent in has_voted for part in self.parts):
            spent = all(part.failure is not None and part.failure.kind == "budget" for part in self.parts)
            return "budget" if spent else "nobody_left"
        if own.termination == "consensus" and self._has_consensus():
            return "consensus"
        if self.rounds < own.max_rounds or own.termination == "coordinator_decides":
            if not await self._ask_coordinator():
                return "budget"
            if self._conclusion:
                return "coordinator"
        self._check_stall()
        if self._stall.is_stalled:
            return "stalled"
        if self.rounds >= own.max_rounds:
            return "max_rounds"
        return None if self._wants_next_round() else "stopped"

    def _took_part(self, part: Part) -> bool:
        """Return whether a member finished the round, or said something or voted before it failed."""
        return part.failure is None or any(
            one.author == part.agent and one.round == self.rounds for one in self.channel.log
        )

    def _has_consensus(self) -> bool:
        """Return whether the latest vote of every member that counts is "ready".

        These are the members that took part in the round, and those that have voted and were interrupted. Members vote
        in the first round before they hear each other, so those votes count only if nobody else has spoken.
        """
        voters = []
        for part in self.parts:
            is_interrupted = part.failure is not None and part.failure.kind in ("timed_out", "limit")
            if self._took_part(part) or (is_interrupted and part.agent in self.channel.votes):
                voters.append(part.agent)
        if self.rounds == 1 and any(self.channel.has_others_spoken(name) for name in voters):
            return False
        return self.channel.has_consensus(voters)

    def _check_stall(self) -> None:
        """Check whether the round repeats earlier ones. A vote that differs from the member's earlier vote is new."""
        votes = {name: vote.ready for name, vote in self.channel.votes.items()}
        said = [one.text for one in self.channel.list_broadcasts(self.rounds)]
        said += [f"{vote.author} {vote.ready} {vote.reason}" for vote in self.channel.list_votes(self.rounds)]
        self._stall.check("\n".join(sorted(said)))
        if votes != self._last_votes:
            self._stall.consecutive = 0
        self._last_votes = votes

    def _wants_next_round(self) -> bool:
        """Return whether to run another round.

        A resumed run repeats the recorded choice. Otherwise, `should_continue` decides.
        """
        ended = self._op.scope.child("discussion_ended#1").find_outcome(DiscussionEnded)
        if ended is not None and ended.by == "stopped":
            return ended.rounds > self.rounds
        return self._has_round_started(self.rounds + 1) or self.should_continue(self)

    def _has_round_started(self, number: int) -> bool:
        """Return whether the timeline already contains a member's turn in this round."""
        stages = (self._op.scope.child(f"member:{agent.name}#{number}") for agent in self._members.values())
        return any(stage.has_child_outcome("operation_started#1") for stage in stages)

    # A round

    async def _run_round(self) -> None:
        """Run all members at once, each with its unread messages. A slow member times out and joins the next round."""
        self._add_injected_messages()
        until = len(self.channel.log)
        news = {name: format_messages(self.channel.unread_messages(name)) for name in self._members}
        self._stages = {
            name: self._op.child(agent, "member", after=self._stages.get(name)) for name, agent in self._members.items()
        }

        requests = []
        for name, stage in self._stages.items():
            stage.coordination_tools = (
                make_member_broadcast_tool(name, self.rounds),
                make_member_vote_tool(name, self.rounds),
            )
            words = render_prompt(
                self._own.prompts,
                "round",
                names=", ".join(self._members),
                round=self.rounds,
                request=self._request.original,
                news=news[name],
            )
            asked = Request(text=words, origin=self._request.original)
            # A member gets the context only once, because its conversation continues. A worker gets it in every round,
            # because it starts a new conversation in each of them.
            if name not in self.channel.read_until or runs_in_worker(stage):
                asked = add_shared_context(self._own, asked, stage.agent)
            requests.append(asked)
        outcomes = await run_members(
            [*self._stages.values()],
            requests,
            max_concurrent=self._own.max_concurrent,
            timeout=self._own.round_timeout,
        )
        parts = dict(zip(self._stages, outcomes, strict=True))
        for name, stage in self._stages.items():
            self._add_member_messages(name, stage, parts[name])
            if parts[name].failure is None:
                self.channel.mark_read(name, until)
                self._injected_characters += len(news[name])
        self.parts = tuple(parts[name] for name in self._members)
        missing = tuple(part.agent for part in self.parts if not self._took_part(part))
        self._op.scope.record(RoundEnded(round=self.rounds, missing=missing))

    def _add_injected_messages(self) -> None:
        """Add injected messages to the channel. In a resumed run, a recorded round gets the same messages as before."""
        place = self._op.scope.child(f"round#{self.rounds}")
        injected, self._injected = self._injected, []
        if not self._has_round_started(self.rounds):
            for number, (author, text) in enumerate(injected, 1):
                place.child(f"injected#{number}").record_outcome(Broadcast(author=author, round=self.rounds, text=text))
        for number in count(1):
            if (said := place.child(f"injected#{number}").find_outcome(Broadcast)) is None:
                break
            self.channel.add(said)

    def _add_member_messages(self, name: str, stage: Operation, part: Part) -> None:
        """Add a member's broadcasts and votes to the channel. A reply without either counts as a broadcast."""
        path = stage.scope.path
        said: list[Broadcast | Voted] = list(
            stage.scope.timeline.find_events_below(path, Broadcast, Voted, operation=path)
        )
        if not said and part.failure is None and self._find_spoken_text(part.text):
            said = [stage.scope.record(Broadcast(author=name, round=self.rounds, text=part.text))]
        for one in said:
            self.channel.add(one)
            if isinstance(one, Voted):
                self.on_vote(one)
            else:
                self.on_broadcast(one)
        if part.failure is not None:
            # The failure is not shown to the members: they would discuss it as if it were a finding.
            took_part = f"did not finish round {self.rounds}, but what it said counts" if said else None
            missed = f"{name} {took_part or f'took no part in round {self.rounds}'}: {part.failure.describe_to(name)}"
            self._missed.append(missed)
            self._op.scope.record(Noticed(text=missed))

    # The coordinator

    async def _ask_coordinator(self) -> bool:
        """Let the coordinator broadcast or conclude after a round. Return False if the lead's budget is used up."""
        op, decides = self._op, self._own.termination == "coordinator_decides"
        until = len(self.channel.log)
        words = render_prompt(
            self._own.prompts,
            "coordinate" if decides else "moderate",
            names=", ".join(self._members),
            round=self.rounds,
            news=format_messages(self.channel.unread_messages(self._coordinator)),
        )
        try:
            reply = await op.session(*(DECIDER_TOOLS if decides else MODERATOR_TOOLS)).ask(words)
        except AgentFailed as error:
            if error.failure.kind == "budget":
                return False
            op.scope.record(Noticed(text=f"The coordinator failed after round {self.rounds}: {error.failure}"))
            return True
        self.channel.mark_read(self._coordinator, until)
        for call in _drop_repeated_calls(reply.calls):
            summary, message = call.arguments.get("summary"), call.arguments.get("message")
            if call.name == "conclude" and isinstance(summary, str) and is_argument(summary, "string"):
                self._conclusion = summary
            if call.name == "broadcast" and isinstance(message, str) and is_argument(message, "string"):
                said = op.scope.record(Broadcast(author=self._coordinator, round=self.rounds, text=message))
                self.channel.add(said)
                self.on_broadcast(said)
        return True

    async def _write_conclusion(self, ended: EndReason) -> str:
        """Return the coordinator's conclusion. Ask for it first if there is none yet.

        If the coordinator fails, return the messages with a notice. Raise AgentFailed if there are no messages, or if
        a budget is used up.
        """
        if ended == "coordinator":
            return self._conclusion
        op = self._op
        words = render_prompt(
            self._own.prompts,
            "conclude",
            why=ended.replace("_", " "),
            request=self._request.original,
            transcript=format_messages(self.channel.unread_messages(self._coordinator)),
        )
        try:
            session = await op.session_without_tools()
            reply = await require_answer(op, session, words, await session.ask(words))
            conclusion = self._find_spoken_text(reply.text)
            if not conclusion or repeats_part(conclusion, words.partition(TASK_HEADING)[2]):
                raise op.make_error("failed", "its reply contained no answer")
        except AgentFailed as error:
            if not self.channel.list_broadcasts():
                raise
            if error.failure.kind == "budget":
                raise AgentFailed(error.failure, so_far=self._format_fallback()) from error
            op.scope.record(Noticed(text=f"The coordinator gave no answer: {error.failure}"))
            return self._format_fallback()
        return conclusion

    def _find_spoken_text(self, text: str) -> str:
        """Return the text of a reply, or an empty string if it only says PASS, repeats the topic, or calls tools."""
        return find_spoken_text(text, TOOL_NAMES, topic=self._request.original)

    def _make_nobody_failure(self) -> AgentFailed:
        """Return the failure of a discussion in whose last round every member failed, with what was said before."""
        failure = make_team_failure(self._op, self.parts).failure
        so_far = self._format_fallback() if self.channel.list_broadcasts() else ""
        return AgentFailed(failure, so_far=so_far)

    def _format_fallback(self) -> str:
        missed = "".join(f"\n[{neutralise(' '.join(one.split()))}]\n" for one in self._missed)
        return f"{FALLBACK}\n{format_messages(self.channel.log)}{missed}"


def _drop_repeated_calls(calls: Iterable[ToolUse]) -> Iterator[ToolUse]:
    """Yield the calls, but skip each call that is identical to the one before it: the engine did not execute it."""
    last: ToolUse | None = None
    for call in calls:
        if last is None or (call.name, call.arguments) != (last.name, last.arguments):
            yield call
        last = call


def _ignore_event(_: object) -> None: ...


def _always_continue(_: object) -> bool:
    return True


ChannelMessage = Broadcast | Voted


@dataclass
class Channel:
    """The messages that all members share, in order."""

    log: list[ChannelMessage] = field(default_factory=list)
    votes: dict[str, Voted] = field(default_factory=dict)
    """The latest vote of each member."""
    read_until: dict[str, int] = field(default_factory=dict)

    def add(self, message: ChannelMessage) -> None:
        """Add a message to the channel."""
        self.log.append(message)
        if isinstance(message, Voted):
            self.votes[message.author] = message

    def unread_messages(self, name: str) -> list[ChannelMessage]:
        """Return the messages from others that a member has not read yet."""
        return [one for one in self.log[self.read_until.get(name, 0) :] if one.author != name]

    def mark_read(self, name: str, until: int) -> None:
        """Mark the first `until` messages as read by a member."""
        self.read_until[name] = until

    def list_broadcasts(self, round: int | None = None) -> list[Broadcast]:
        """Return the broadcasts from one round, or from all rounds."""
        return [one for one in self.log if isinstance(one, Broadcast) and round in (None, one.round)]

    def list_votes(self, round: int) -> list[Voted]:
        """Return the last vote of each member in a round."""
        return [*{one.author: one for one in self.log if isinstance(one, Voted) and one.round == round}.values()]

    def has_others_spoken(self, name: str) -> bool:
        """Return whether others have sent messages that a member has not read yet."""
        unread = self.log[self.read_until.get(name, 0) :]
        return any(isinstance(one, Broadcast) and one.author != name for one in unread)

    def has_consensus(self, names: Iterable[str]) -> bool:
        """Return whether all of these members are ready, according to their latest votes."""
        voted = [self.votes.get(name) for name in names]
        return bool(voted) and all(vote is not None and vote.ready for vote in voted)


def format_messages(messages: Iterable[ChannelMessage]) -> str:
    """Format messages with author and round. Lines are quoted so that none can imitate another author's message."""
    return "".join(f"\n{_format_message(one)}\n" for one in messages)


def _format_message(message: ChannelMessage) -> str:
    match message:
        case Broadcast():
            return f"[{message.author}, round {message.round}]{quote_lines(neutralise(message.text))}"
        case Voted():
            vote = "ready to conclude" if message.ready else "not ready to conclude"
            reason = f": {neutralise(' '.join(message.reason.split()))}" if message.reason.strip() else ""
            return f"[{message.author}, round {message.round}, votes] {vote}{reason}"
