// The agents that work for an agent, and how they are connected.

import { html } from "../vendor.mjs";
import { Badge } from "./badge.mjs";
import { Graph } from "./graph.mjs";
import { revealLine } from "./reveal.mjs";

function AgentBox({ agent, isFirst }) {
  return html`<div class="graph-box"><p class="strong clip">${revealLine(agent.name)}</p>
    <p class="row"><span class="quiet small clip">${agent.source}</span>${isFirst ? html`<${Badge} word="starts" icon="play" tone="works" />` : null}
      ${agent.terminal ? html`<${Badge} word="answers" icon="check" tone="well" />` : null}</p></div>`;
}

/** `graph` is what GET /api/agents/NAME/graph returns. The edges are also listed as sentences, for everybody. */
export function WorkflowGraph({ graph }) {
  const nodes = graph.agents.map((agent) => ({ id: agent.name, content: html`<${AgentBox} agent=${agent} isFirst=${agent.name === graph.agent} />` }));
  const edges = graph.agents.flatMap((agent) => agent.edges.map((edge) => ({ from: agent.name, to: edge.to, kind: edge.kind, label: revealLine(edge.label) })));
  return html`<${Graph} nodes=${nodes} edges=${edges.map(({ label, ...edge }) => edge)} label="Agents and how they are connected" size=${{ width: 250, height: 72 }} />
    ${edges.length ? html`<details><summary>Connections in words</summary><ul class="stack small edges">${edges.map((edge, number) => html`<li key=${number}>
      <span class="strong">${revealLine(edge.from)}</span> <span class="quiet">${edge.label || edge.kind}</span> <span class="strong">${revealLine(edge.to)}</span></li>`)}</ul></details>` : null}`;
}
