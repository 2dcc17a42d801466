// The decisions of the repository: a list, and a page for each with its ballots.

import { html } from "../vendor.mjs";
import { address, route } from "../router.mjs";
import { clock, iso, plural } from "../format.mjs";
import { Badge } from "../parts/badge.mjs";
import { Ballots, Vote } from "../parts/ballots.mjs";
import { Icon } from "../parts/icons.mjs";
import { useLoaded } from "../parts/loaded.mjs";
import { Empty, Loading, ProblemBanner } from "../parts/notices.mjs";
import { reveal, revealLine } from "../parts/reveal.mjs";
import { Age } from "../parts/time.mjs";

const STATUSES = {
  proposed: ["not decided yet", "hand", "needs"],
  accepted: ["in force", "check", "well"],
  superseded: ["superseded", "resume", "quiet"],
};

function StatusBadge({ status }) {
  const [word, icon, tone] = STATUSES[status] || [status, "dot", "quiet"];
  return html`<${Badge} word=${word} icon=${icon} tone=${tone} />`;
}

function DecisionList({ decisions, repo }) {
  if (!decisions.length) {
    return html`<${Empty} title="No decisions yet" command=${'podium decide "Which database?" --option SQLite --option PostgreSQL'}>
      What a team or a person decides for ${repo || "this repository"} appears here, with the ballots and the reasons.<//>`;
  }
  return html`<ul class="list">${decisions.map((one) => html`<li key=${`${one.run}/${one.id}`}>
    <a class="item" data-item href=${address("decisions", `${one.run}/${one.id}`)}>
      <span class="row"><span class="strong">${revealLine(one.topic)}</span><span class="gap"></span><${StatusBadge} status=${one.status} /></span>
      <span class="row small quiet">${one.option ? html`<span>${revealLine(one.option)}</span>` : html`<span>${plural(one.options.length, "option")}</span>`}
        ${one.participants.length ? html`<span>${one.participants.map(revealLine).join(", ")}</span>` : null}
        <span class="gap"></span><${Age} at=${one.committed_at || one.proposed_at} after=" ago" /></span></a></li>`)}</ul>`;
}

/** A link to another decision of the repository, by its id. */
function OtherDecision({ id, decisions }) {
  const other = decisions.find((one) => one.id === id);
  return other ? html`<a href=${address("decisions", `${other.run}/${other.id}`)}>${revealLine(other.topic)}</a>` : html`<code>${revealLine(id)}</code>`;
}

function Options({ decision }) {
  return html`<ol class="options">${decision.options.map((option) => {
    const isChosen = option === decision.option;
    return html`<li key=${option} data-chosen=${isChosen ? "" : null}><${Icon} name=${isChosen ? "check" : "dot"} />
      <span>${revealLine(option)}${isChosen ? html`<span class="quiet"> chosen</span>` : null}</span></li>`;
  })}</ol>`;
}

function Facts({ decision, decisions }) {
  const facts = [
    ["Proposed", html`<time datetime=${iso(decision.proposed_at)} title=${iso(decision.proposed_at)}>${new Date(decision.proposed_at * 1000).toLocaleDateString("en-GB")} ${clock(decision.proposed_at)}</time>
      ${decision.proposed_by ? ` by ${revealLine(decision.proposed_by)}` : ""}`],
    ["Run", html`<a href=${address("run", decision.run)}><code>${decision.run}</code></a>`],
  ];
  if (decision.step) facts.push(["Step", html`<a href=${address("plans", decision.run)}><code>${revealLine(decision.step)}</code></a>`]);
  if (decision.supersedes) facts.push(["Supersedes", html`<${OtherDecision} id=${decision.supersedes} decisions=${decisions} />`]);
  if (decision.superseded_by) facts.push(["Superseded by", html`<${OtherDecision} id=${decision.superseded_by} decisions=${decisions} />`]);
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

function Outcome({ decision }) {
  if (!decision.option) return null;
  return html`<section class="card"><h2>Decision</h2>
    <p class="outcome"><${Icon} name="check" /> <span class="strong">${revealLine(decision.option)}</span>${" "}
      <span class="quiet">${revealLine(decision.how)}${decision.committed_by ? `, by ${revealLine(decision.committed_by)}` : ""}</span></p>
    ${decision.rationale ? html`<h3>Rationale</h3><p class="quote">${reveal(decision.rationale)}</p>` : html`<p class="quiet">No reason was given.</p>`}
    ${decision.consequences ? html`<h3>Consequences</h3><p class="quote">${reveal(decision.consequences)}</p>` : null}</section>`;
}

function DecisionPage({ decision, decisions }) {
  return html`<div class="stack wide decision">
    <div class="stack"><div class="row"><h2>${revealLine(decision.topic)}</h2><${StatusBadge} status=${decision.status} /></div>
      <${Facts} decision=${decision} decisions=${decisions} /></div>
    <${Vote} decision=${decision} />
    <${Outcome} decision=${decision} />
    <section class="stack"><h2>Options</h2><${Options} decision=${decision} /></section>
    ${decision.evidence ? html`<section class="stack"><h2>Evidence</h2><p class="quote">${reveal(decision.evidence)}</p></section>` : null}
    <${Ballots} decision=${decision} />
    <details><summary>Text as a decision record</summary><pre class="block">${reveal(decision.text)}</pre></details>
  </div>`;
}

function OneDecision({ id }) {
  const path = id.split("/").map(encodeURIComponent).join("/");
  const { data, problem, reload } = useLoaded(`/api/decisions/${path}`);
  const all = useLoaded("/api/decisions").data;
  return html`<div class="screen-head"><a class="button small" href=${address("decisions")}><${Icon} name="back" />Decisions</a><h1>Decision</h1></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${data ? html`<${DecisionPage} decision=${data.decision} decisions=${all ? all.decisions : []} />` : problem ? null : html`<${Loading} what="the decision" />`}`;
}

function AllDecisions() {
  const { data, problem, reload } = useLoaded("/api/decisions");
  return html`<div class="screen-head"><h1>Decisions</h1></div>
    <${ProblemBanner} problem=${problem} onRetry=${reload} />
    ${data ? html`<${DecisionList} decisions=${data.decisions} />` : problem ? null : html`<${Loading} what="the decisions" />`}`;
}

export default function Decisions() {
  const { id } = route.value;
  return id ? html`<${OneDecision} key=${id} id=${id} />` : html`<${AllDecisions} />`;
}
