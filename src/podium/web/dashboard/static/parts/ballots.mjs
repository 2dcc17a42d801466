// The vote on a decision: while it is open, how long it still is and who is missing; and all ballots with their reasons.

import { html } from "../vendor.mjs";
import { address } from "../router.mjs";
import { requests } from "../state.mjs";
import { duration } from "../format.mjs";
import { Icon } from "./icons.mjs";
import { reveal, revealLine } from "./reveal.mjs";
import { Age, now } from "./time.mjs";

function Countdown({ until }) {
  const left = until - now.value;
  return html`<span class="countdown" role="timer">${left > 0 ? `closes in ${duration(left)}` : "closes as soon as the voters have finished"}</span>`;
}

/** What an undecided decision still waits for. */
export function Vote({ decision }) {
  const { vote } = decision;
  if (decision.option) return null;
  const request = (requests.value || []).find((one) => one.run === decision.run && one.kind === "decision");
  return html`<div class="notice"><${Icon} name="hand" /><div class="grow stack">
    ${vote.closes_at ? html`<p><span class="strong">The vote is open</span>; it <${Countdown} until=${vote.closes_at} />.</p>`
      : html`<p class="strong">${vote.closed ? "The vote is closed, and nothing is decided yet." : "Nothing is decided yet."}</p>`}
    ${vote.waiting_for.length ? html`<p>Missing voters: ${vote.waiting_for.map(revealLine).join(", ")}</p>` : null}
    ${vote.missing ? html`<p>Needed: ${revealLine(vote.missing)}</p>` : null}
    ${request ? html`<p><a href=${address("approvals", request.id)}>Decide it in Approvals</a></p>` : null}
  </div></div>`;
}

const CLOSED = { decided: "The vote has a result.", complete: "Everybody voted, without a result.", timeout: "The time was up." };

/** Return the rule of a vote in words. */
function describeRule({ rule, decide_by }) {
  const [name, number] = rule.split(":");
  const words = {
    majority: "More than half of all voters must agree.",
    unanimous: "All voters must agree.",
    weighted: "The agreeing voters need more than half of the total weight.",
    quorum: `At least ${number} ballots are needed; the option with the most votes wins.`,
  };
  const otherwise = decide_by === "person" ? "a person decides" : "the lead decides";
  return `${words[name] || rule} Without a result, ${otherwise}.`;
}

function Voter({ name, weight }) {
  return html`<span class="strong">${revealLine(name)}</span>${weight !== 1 ? html` <span class="quiet small">weight ${weight}</span>` : null}`;
}

export function Ballots({ decision }) {
  const { vote, ballots, refused } = decision;
  const voters = Object.entries(vote.eligible);
  if (!voters.length && !ballots.length && !refused.length) return html`<section class="stack"><h2>Ballots</h2><p class="quiet">There is no vote on this.</p></section>`;
  const cast = new Map(ballots.map((one) => [one.voter, one]));
  return html`<section class="stack"><h2>Ballots</h2>
    <p class="quiet">${describeRule(vote)} ${CLOSED[vote.closed] || ""}</p>
    <ul class="list">
      ${voters.map(([name, weight]) => {
        const ballot = cast.get(name);
        return html`<li class="item" key=${name}><span class="row"><${Voter} name=${name} weight=${weight} />
          <span>${ballot ? (ballot.option ? `votes for ${revealLine(ballot.option)}` : "abstains") : html`<span class="quiet">no ballot</span>`}</span>
          ${ballot?.at ? html`<span class="gap"></span><a class="small" href=${address("run", decision.run, { entry: ballot.seq })}><${Age} at=${ballot.at} after=" ago" /></a>` : null}</span>
          ${ballot && ballot.reason ? html`<p class="pre quiet">${reveal(ballot.reason)}</p>` : null}</li>`;
      })}
      ${refused.map((one, number) => html`<li class="item" key=${`refused ${number}`}><span class="row"><span class="strong">${revealLine(one.voter)}</span>
        <span class="tone-failed"><${Icon} name="cross" /> ballot${one.option ? ` for ${revealLine(one.option)}` : ""} refused</span></span>
        <p class="pre quiet">${reveal(one.reason)}</p></li>`)}
    </ul></section>`;
}
